/* Gradients: from the parameters to the buckets, and from there to the shard. */
#include "agree.h"
#include "sharded_state.h"

enum { BUFFERS = 2 }; /* buckets in flight before tutti_sharded_ready waits, if the program reports them in order */

static tutti_tensor bucket_gradients(const struct tutti_sharded *sharded, const struct shard_bucket *bucket)
{
    return tutti_tensor_of(bucket->gradient->data, bucket->part * sharded->size,
                           sharded->parameter[bucket->first].gradient.dtype);
}

static tutti_tensor place_of(const struct tutti_sharded *sharded, const struct shard_parameter *parameter)
{
    const struct shard_bucket *bucket = &sharded->bucket[parameter->bucket];
    return shard_slice(bucket_gradients(sharded, bucket), parameter->at - bucket->at, parameter->gradient.numel);
}

int shard_fail(struct tutti_sharded *sharded, int status)
{
    if (sharded->status == TUTTI_OK && status != TUTTI_OK) {
        sharded->status = status;
        snprintf(sharded->text, sizeof sharded->text, "%s", tutti_last_error());
    }
    return status;
}

/* Adds elements of another dtype to the shard's, piece by piece. */
static int add_converted(tutti_tensor out, tutti_tensor in)
{
    double piece[512];
    int status = TUTTI_OK;
    for (int64_t at = 0; at < in.numel && status == TUTTI_OK; at += 512) {
        int64_t numel = in.numel - at < 512 ? in.numel - at : 512;
        tutti_tensor converted = tutti_tensor_of(piece, numel, out.dtype);
        status = shard_convert(converted, shard_slice(in, at, numel));
        if (status == TUTTI_OK) status = tutti_reduce_local(shard_slice(out, at, numel), converted, TUTTI_SUM);
    }
    return status;
}

/* Waits for the oldest bucket in flight and moves this rank's part to the shard. */
static int finish_one(struct tutti_sharded *sharded)
{
    struct shard_bucket *bucket = &sharded->bucket[sharded->n_finished++];
    int status = bucket->reducing != NULL ? tutti_wait(&bucket->reducing, TUTTI_DEFAULT_TIMEOUT) : TUTTI_OK;
    if (status == TUTTI_OK && sharded->status == TUTTI_OK) {
        tutti_tensor part = shard_slice(bucket_gradients(sharded, bucket), bucket->own, bucket->n_own);
        tutti_tensor shard = shard_slice(tutti_sharded_gradient(sharded), bucket->shard_at, bucket->n_own);
        status = sharded->accumulate ? add_converted(shard, part) : shard_convert(shard, part);
    }
    shard_pool_put(&sharded->pool, bucket->gradient);
    bucket->gradient = NULL;
    return shard_fail(sharded, status);
}

/* Gives a bucket memory, if it has none. */
static int open_bucket(struct tutti_sharded *sharded, struct shard_bucket *bucket)
{
    if (bucket->gradient != NULL) return TUTTI_OK;
    if (sharded->pool.n_free == 0 && sharded->pool.n >= BUFFERS && sharded->n_finished < sharded->n_started)
        finish_one(sharded); /* tutti_sharded_wait returns its error */
    bucket->gradient = shard_pool_take(sharded);
    if (bucket->gradient != NULL) return TUTTI_OK;
    shard_fail(sharded, TUTTI_ERR_NO_MEMORY);
    tutti_abort(sharded->opts.group, sharded->text);
    return TUTTI_ERR_NO_MEMORY;
}

/* Starts the reduction of the next bucket.  All ranks start buckets in the same order.  The padding at the bucket's end
 * is reduced, too, but no rank uses it. */
static int start_next(struct tutti_sharded *sharded)
{
    struct shard_bucket *bucket = &sharded->bucket[sharded->n_started++];
    tutti_tensor whole = bucket_gradients(sharded, bucket);
    tutti_tensor own = shard_slice(whole, bucket->part * sharded->rank, bucket->part);
    tutti_opts opts = shard_opts(sharded, &bucket->reducing);
    tutti_reduce_op op = sharded->opts.sum ? TUTTI_SUM : TUTTI_AVG;
    int status = shard_fail(sharded, tutti_reduce_scatter_tensor(own, whole, op, &opts));
    if (status != TUTTI_OK) tutti_abort(sharded->opts.group, sharded->text); /* the other ranks wait for this one */
    return status;
}

static bool next_is_full(const struct tutti_sharded *sharded)
{
    if (sharded->n_started == sharded->n_buckets) return false;
    const struct shard_bucket *bucket = &sharded->bucket[sharded->n_started];
    return bucket->n_reported == bucket->last - bucket->first + 1;
}

int tutti_sharded_ready(tutti_sharded *sharded, int i)
{
    if (i < 0 || i >= sharded->n)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "sharded_ready: %d is not in the list of %d parameters", i,
                               sharded->n);
    struct shard_parameter *parameter = &sharded->parameter[i];
    struct shard_bucket *bucket = &sharded->bucket[parameter->bucket];
    if (parameter->reported)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "sharded_ready: the gradient of \"%s\" was reported before in this iteration; report "
                               "each gradient once, or call tutti_sharded_wait in between",
                               parameter->name);
    int status = open_bucket(sharded, bucket);
    if (status != TUTTI_OK) return status;
    status = shard_convert(place_of(sharded, parameter), parameter->gradient);
    if (status != TUTTI_OK) return shard_fail(sharded, status);
    parameter->reported = true;
    bucket->n_reported++;
    sharded->n_reported++;
    while (status == TUTTI_OK && next_is_full(sharded)) status = start_next(sharded);
    return status;
}

/* Sets the error that names the first gradient that was not reported. */
static int find_missing(const struct tutti_sharded *sharded)
{
    int missing = sharded->n - sharded->n_reported, first = 0;
    if (missing == 0 || sharded->opts.unused_as_zero) return TUTTI_OK;
    while (sharded->parameter[first].reported) first++;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                           "sharded_wait: %d of %d gradients were not reported, the first is that of \"%s\"; report "
                           "all, or set unused_as_zero",
                           missing, sharded->n, sharded->parameter[first].name);
}

/* Starts the buckets that are not full, with zeros for the gradients that are missing: the other ranks wait for them.
 */
static int start_rest(struct tutti_sharded *sharded)
{
    int status = TUTTI_OK;
    while (sharded->n_started < sharded->n_buckets && status == TUTTI_OK) {
        struct shard_bucket *bucket = &sharded->bucket[sharded->n_started];
        status = open_bucket(sharded, bucket);
        if (status != TUTTI_OK) break;
        for (int i = bucket->first; i <= bucket->last; i++) {
            if (sharded->parameter[i].reported) continue;
            tutti_tensor place = place_of(sharded, &sharded->parameter[i]);
            memset(place.data, 0, (size_t)(place.numel * tutti_dtype_bytes(place.dtype)));
        }
        status = start_next(sharded);
    }
    return status;
}

/* Makes ready for the next iteration. */
static void reset(struct tutti_sharded *sharded)
{
    for (int i = 0; i < sharded->n; i++) sharded->parameter[i].reported = false;
    for (int k = 0; k < sharded->n_buckets; k++) {
        struct shard_bucket *bucket = &sharded->bucket[k];
        if (bucket->gradient != NULL) shard_pool_put(&sharded->pool, bucket->gradient);
        bucket->gradient = NULL;
        bucket->n_reported = 0;
    }
    sharded->n_reported = sharded->n_started = sharded->n_finished = 0;
    sharded->status = TUTTI_OK;
}

int tutti_sharded_wait(tutti_sharded *sharded)
{
    int missing = find_missing(sharded);
    start_rest(sharded);
    while (sharded->n_finished < sharded->n_started) finish_one(sharded);
    int status = sharded->status;
    if (status != TUTTI_OK) tutti_set_error(status, "%s", sharded->text);
    if (status == TUTTI_OK) status = missing != TUTTI_OK ? find_missing(sharded) : TUTTI_OK;
    reset(sharded);
    return agree_on_status(sharded->opts.group, sharded->opts.timeout_ms, status);
}

int tutti_sharded_set_accumulate(tutti_sharded *sharded, bool accumulate)
{
    if (sharded->n_reported > 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "sharded_set_accumulate: %d gradients were reported since the last tutti_sharded_wait; "
                               "call that first",
                               sharded->n_reported);
    sharded->accumulate = accumulate;
    return TUTTI_OK;
}
