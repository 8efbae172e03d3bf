/* The state of a sharded optimizer.
 *
 * Bucket k holds the whole parameters first .. last, in list order.  Bucket 0 has the last parameters, because their
 * gradients are complete first.  All elements of the model are numbered in list order, so each bucket, and each rank's
 * part of it, is one range of these numbers. */
#ifndef TRAIN_SHARDED_STATE_H
#define TRAIN_SHARDED_STATE_H

#include <stdlib.h>
#include <string.h>
#include <tutti/train/sharded.h>

/* Memory that the ranks of a host read in place if the group's backend allocates it. */
struct shard_memory {
    void *data;
    size_t bytes;
    bool shared; /* of tutti_alloc, else of aligned_alloc */
};

struct shard_parameter {
    char *name;
    tutti_tensor value, gradient;
    int64_t at; /* number of its first element in the model */
    int bucket;
    bool reported;
};

struct shard_bucket {
    int first, last;    /* parameters */
    int64_t at, numel;  /* its elements' range in the model */
    int64_t part;       /* elements of each rank's part, which the last ones do not fill */
    int64_t own, n_own; /* this rank's part: its first element in the bucket, and its length */
    int64_t shard_at;   /* the part's first element in the shard */
    int n_reported;
    struct shard_memory *gradient; /* while gradients are collected and reduced */
    tutti_work *reducing;
    struct shard_memory value;
    tutti_work *gathering;
    bool is_gathered; /* the value memory has values that were not copied to the parameters yet */
};

/* The gradient memory of buckets, which is used again and again.  Each has space for the largest bucket. */
struct shard_pool {
    size_t bytes;
    int n, n_free;
    struct shard_memory **all, **free;
};

struct tutti_sharded {
    tutti_sharded_opts opts;
    int rank, size;
    int n, n_buckets;
    struct shard_parameter *parameter;
    struct shard_bucket *bucket;
    struct shard_pool pool;
    int64_t numel, shard_numel;
    void *value, *gradient; /* the shard */
    int n_reported;
    int n_started, n_finished; /* buckets whose reduction has started, has ended: always the first ones */
    bool accumulate;
    int status; /* the first error of this iteration, with its message */
    char text[1024];
};

/* Returns the options for a call. */
static inline tutti_opts shard_opts(const struct tutti_sharded *sharded, tutti_work **work)
{
    return (tutti_opts){
        .group = sharded->opts.group, .timeout_ms = sharded->opts.timeout_ms, .async_op = work, .group_rank = true};
}

/* Returns a part of a tensor. */
static inline tutti_tensor shard_slice(tutti_tensor whole, int64_t begin, int64_t numel)
{
    char *data = whole.data;
    whole.data = data != NULL ? data + begin * tutti_dtype_bytes(whole.dtype) : NULL;
    whole.numel = numel;
    return whole;
}

/* Copies elements, and converts them if the dtypes differ.  Disjoint tensors of floating dtypes on the CPU cannot fail.
 */
int shard_convert(tutti_tensor out, tutti_tensor in);

/* ---- sharded_layout.c -------------------------------------------------------------------------------------- */

/* Divides parameters into buckets, and the buckets into parts.  Returns false without memory. */
bool shard_layout_make(struct tutti_sharded *sharded);

/* Returns where a rank's part of a bucket begins, and stores its length. */
int64_t shard_layout_part(const struct shard_bucket *bucket, int rank, int64_t *numel);

/* ---- sharded_memory.c -------------------------------------------------------------------------------------- */

int shard_memory_alloc(struct shard_memory *memory, tutti_group *group, size_t bytes);
void shard_memory_free(struct shard_memory *memory, tutti_group *group);

/* Returns memory of the pool, which grows if none is free; NULL, with the error set, without memory. */
struct shard_memory *shard_pool_take(struct tutti_sharded *sharded);
void shard_pool_put(struct shard_pool *pool, struct shard_memory *memory);
void shard_pool_free(struct shard_pool *pool, tutti_group *group);

/* ---- values and gradients ---------------------------------------------------------------------------------- */

/* Keeps the first error of an iteration, with its message, and returns the status. */
int shard_fail(struct tutti_sharded *sharded, int status);

/* Copies the parameters' values into the buckets, broadcasts rank 0's, and copies them to parameters and shard. */
int shard_values_broadcast(struct tutti_sharded *sharded);

#endif
