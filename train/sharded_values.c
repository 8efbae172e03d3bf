/* Values: from the shard to the buckets, and from there to the parameters. */
#include "sharded_state.h"

static tutti_tensor bucket_values(const struct tutti_sharded *sharded, const struct shard_bucket *bucket)
{
    return tutti_tensor_of(bucket->value.data, bucket->part * sharded->size,
                           sharded->parameter[bucket->first].value.dtype);
}

static tutti_tensor shard_values(const struct tutti_sharded *sharded, const struct shard_bucket *bucket)
{
    return shard_slice(tutti_sharded_value(sharded), bucket->shard_at, bucket->n_own);
}

/* Returns the place of a parameter in its bucket. */
static tutti_tensor place_of(const struct tutti_sharded *sharded, const struct shard_parameter *parameter)
{
    const struct shard_bucket *bucket = &sharded->bucket[parameter->bucket];
    return shard_slice(bucket_values(sharded, bucket), parameter->at - bucket->at, parameter->value.numel);
}

tutti_tensor tutti_sharded_parameter(const tutti_sharded *sharded, int i)
{
    if (i < 0 || i >= sharded->n) return tutti_tensor_of(NULL, -1, TUTTI_FLOAT32);
    const struct shard_parameter *parameter = &sharded->parameter[i];
    return sharded->opts.values_as_views ? place_of(sharded, parameter) : parameter->value;
}

static void copy_to_parameters(struct tutti_sharded *sharded, const struct shard_bucket *bucket)
{
    for (int i = bucket->first; i <= bucket->last && !sharded->opts.values_as_views; i++)
        shard_convert(sharded->parameter[i].value, place_of(sharded, &sharded->parameter[i]));
}

static int broadcast_bucket(struct tutti_sharded *sharded, struct shard_bucket *bucket)
{
    tutti_opts opts = shard_opts(sharded, NULL);
    tutti_tensor values = bucket_values(sharded, bucket);
    for (int i = bucket->first; i <= bucket->last; i++)
        if (sharded->parameter[i].value.data != NULL)
            shard_convert(place_of(sharded, &sharded->parameter[i]), sharded->parameter[i].value);
    int status = tutti_broadcast(shard_slice(values, 0, bucket->numel), 0, &opts);
    if (status != TUTTI_OK) return status;
    copy_to_parameters(sharded, bucket);
    return shard_convert(shard_values(sharded, bucket), shard_slice(values, bucket->own, bucket->n_own));
}

int shard_values_broadcast(struct tutti_sharded *sharded)
{
    int status = TUTTI_OK;
    for (int k = 0; k < sharded->n_buckets && status == TUTTI_OK; k++)
        status = broadcast_bucket(sharded, &sharded->bucket[k]);
    return status;
}

static int start_gathering(struct tutti_sharded *sharded, struct shard_bucket *bucket)
{
    tutti_tensor values = bucket_values(sharded, bucket);
    tutti_opts opts = shard_opts(sharded, &bucket->gathering);
    int status = shard_convert(shard_slice(values, bucket->own, bucket->n_own), shard_values(sharded, bucket));
    if (status != TUTTI_OK) return status;
    bucket->is_gathered = true;
    /* Ranks whose part is short or empty send the padding behind the bucket's end, too. */
    return tutti_all_gather_into_tensor(values, shard_slice(values, bucket->part * sharded->rank, bucket->part), &opts);
}

static int finish_gathering(struct tutti_sharded *sharded, struct shard_bucket *bucket)
{
    int status = bucket->gathering != NULL ? tutti_wait(&bucket->gathering, TUTTI_DEFAULT_TIMEOUT) : TUTTI_OK;
    if (status == TUTTI_OK && bucket->is_gathered) copy_to_parameters(sharded, bucket);
    bucket->is_gathered = false;
    return status;
}

int tutti_sharded_wait_value(tutti_sharded *sharded, int i)
{
    if (i < 0 || i >= sharded->n)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "sharded_wait_value: %d is not in the list of %d parameters",
                               i, sharded->n);
    return finish_gathering(sharded, &sharded->bucket[sharded->parameter[i].bucket]);
}

int tutti_sharded_wait_values(tutti_sharded *sharded)
{
    int first = TUTTI_OK;
    for (int k = sharded->n_buckets - 1; k >= 0; k--) {
        int status = finish_gathering(sharded, &sharded->bucket[k]);
        if (first == TUTTI_OK) first = status;
    }
    return first;
}

int tutti_sharded_update(tutti_sharded *sharded)
{
    if (sharded->n_reported > 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "sharded_update: %d gradients were reported since the last tutti_sharded_wait; call "
                               "that first",
                               sharded->n_reported);
    int status = tutti_sharded_wait_values(sharded);
    for (int k = sharded->n_buckets - 1; k >= 0 && status == TUTTI_OK; k--)
        status = start_gathering(sharded, &sharded->bucket[k]);
    if (status != TUTTI_OK) tutti_abort(sharded->opts.group, tutti_last_error()); /* the others wait for this rank */
    return status;
}
