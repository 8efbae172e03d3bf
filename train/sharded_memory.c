#include <inttypes.h>

#include "sharded_state.h"

enum { ALIGNMENT = 64 };

int shard_memory_alloc(struct shard_memory *memory, tutti_group *group, size_t bytes)
{
    bytes = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT; /* at least some */
    *memory = (struct shard_memory){.bytes = bytes};
    if (tutti_get_device(group).type == TUTTI_CPU && tutti_alloc(group, (int64_t)bytes, &memory->data) == TUTTI_OK) {
        memory->shared = true;
    } else {
        memory->data = aligned_alloc(ALIGNMENT, bytes);
        if (memory->data == NULL)
            return tutti_set_error(TUTTI_ERR_NO_MEMORY, "sharded: no memory for a bucket of %zu bytes", bytes);
    }
    memset(memory->data, 0, bytes);
    return TUTTI_OK;
}

void shard_memory_free(struct shard_memory *memory, tutti_group *group)
{
    if (memory->shared)
        tutti_free(group, memory->data);
    else
        free(memory->data);
    memory->data = NULL;
}

/* Adds free memory to the pool. */
static int grow(struct shard_pool *pool, tutti_group *group)
{
    size_t bytes = ((size_t)pool->n + 1) * sizeof(void *);
    struct shard_memory **all = realloc(pool->all, bytes), **unused = realloc(pool->free, bytes);
    if (all != NULL) pool->all = all;
    if (unused != NULL) pool->free = unused;
    struct shard_memory *memory = all != NULL && unused != NULL ? calloc(1, sizeof *memory) : NULL;
    if (memory == NULL) return tutti_set_error(TUTTI_ERR_NO_MEMORY, "sharded: no memory for a list of buckets");
    int status = shard_memory_alloc(memory, group, pool->bytes);
    if (status != TUTTI_OK) {
        free(memory);
        return status;
    }
    pool->all[pool->n++] = memory;
    pool->free[pool->n_free++] = memory;
    return TUTTI_OK;
}

struct shard_memory *shard_pool_take(struct tutti_sharded *sharded)
{
    struct shard_pool *pool = &sharded->pool;
    if (pool->n_free == 0 && grow(pool, sharded->opts.group) != TUTTI_OK) return NULL;
    return pool->free[--pool->n_free];
}

void shard_pool_put(struct shard_pool *pool, struct shard_memory *memory)
{
    pool->free[pool->n_free++] = memory;
}

void shard_pool_free(struct shard_pool *pool, tutti_group *group)
{
    for (int i = 0; i < pool->n; i++) {
        shard_memory_free(pool->all[i], group);
        free(pool->all[i]);
    }
    free(pool->all);
    free(pool->free);
}
