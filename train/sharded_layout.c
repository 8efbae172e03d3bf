#include "sharded_state.h"

/* Appends a bucket that ends with parameter `last`: as many parameters of the same dtypes as fill it. */
static void add_bucket(struct tutti_sharded *sharded, int last)
{
    const struct shard_parameter *parameter = sharded->parameter;
    int64_t bytes = 0, limit = sharded->opts.bucket_bytes;
    int first = last + 1;
    do {
        first--;
        bytes += parameter[first].gradient.numel * tutti_dtype_bytes(parameter[first].gradient.dtype);
    } while (first > 0 && bytes < limit && parameter[first - 1].value.dtype == parameter[last].value.dtype &&
             parameter[first - 1].gradient.dtype == parameter[last].gradient.dtype);
    int64_t numel = parameter[last].at + parameter[last].value.numel - parameter[first].at;
    sharded->bucket[sharded->n_buckets++] =
        (struct shard_bucket){.first = first,
                              .last = last,
                              .at = parameter[first].at,
                              .numel = numel,
                              .part = numel / sharded->size + (numel % sharded->size != 0)};
}

int64_t shard_layout_part(const struct shard_bucket *bucket, int rank, int64_t *numel)
{
    int64_t begin = bucket->part * rank;
    if (begin > bucket->numel) begin = bucket->numel;
    *numel = bucket->numel - begin < bucket->part ? bucket->numel - begin : bucket->part;
    return begin;
}

bool shard_layout_make(struct tutti_sharded *sharded)
{
    sharded->bucket = calloc((size_t)sharded->n, sizeof *sharded->bucket);
    if (sharded->bucket == NULL) return false;
    for (int i = 0; i < sharded->n; i++) {
        sharded->parameter[i].at = sharded->numel;
        sharded->numel += sharded->parameter[i].value.numel;
    }
    for (int last = sharded->n - 1; last >= 0; last = sharded->bucket[sharded->n_buckets - 1].first - 1)
        add_bucket(sharded, last);
    /* The shard is in the model's order, which is the reverse order of buckets. */
    for (int k = sharded->n_buckets - 1; k >= 0; k--) {
        struct shard_bucket *bucket = &sharded->bucket[k];
        bucket->own = shard_layout_part(bucket, sharded->rank, &bucket->n_own);
        bucket->shard_at = sharded->shard_numel;
        sharded->shard_numel += bucket->n_own;
        for (int i = bucket->first; i <= bucket->last; i++) sharded->parameter[i].bucket = k;
    }
    return true;
}
