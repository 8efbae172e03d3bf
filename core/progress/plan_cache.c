#include "progress/plan_cache.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/error.h"
#include "coll/coll.h"
#include "op/op.h"
#include "state/group_state.h"

/* Scratch is kept because new memory is slow: the kernel takes and clears its pages one by one when they are first
 * touched. */
enum { CACHE_MOST = 128, CACHE_BUCKETS = 64, CACHE_SCRATCH_KEPT = 64 << 20, MONITORED_MOST = 128 };

/* Everything that a plan depends on.  It is zeroed before it is filled, because keys are compared as bytes. */
struct key {
    const tutti_backend *backend;
    int64_t count;
    int32_t kind, root, element;
    uint8_t in_place, average, premul, even, list, user, ordered,
        unused[1];     /* no padding, because keys are compared as bytes */
    uint32_t n_counts; /* uneven blocks: number of entries in counts, in before out */
};

struct plan_cache_entry {
    TAILQ_ENTRY(plan_cache_entry) age;
    LIST_ENTRY(plan_cache_entry) chain;
    struct key key;
    uint64_t call; /* `call` of the operation that last took it: see tutti_op */
    int64_t *counts;
    struct plan *plan;
    size_t bytes; /* size of the plan, of one run without scratch, and of this struct */
    struct exec *spare;
    int running;
};

struct plan_cache {
    TAILQ_HEAD(by_age_head, plan_cache_entry) by_age; /* most recent first */
    LIST_HEAD(, plan_cache_entry) bucket[CACHE_BUCKETS];
    struct plan_cache_entry *latest[TUTTI_KIND_COUNT]; /* for repeated calls of a kind; may be NULL */
    int n;
    size_t bytes;        /* sum of all entries */
    size_t scratch_kept; /* bytes of scratch in all spare execs */
};

/* The blocks of both sides, in the form that builders take. */
struct shape {
    struct key key;
    int64_t *counts; /* in_count, out_count, in_at, out_at: size entries each */
    bool in_blocks, out_blocks, in_list, out_list;
};

struct plan_cache *plan_cache_new(void)
{
    struct plan_cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL) return NULL;
    TAILQ_INIT(&cache->by_age);
    return cache;
}

static struct exec *take_spare(struct plan_cache *cache, struct plan_cache_entry *entry)
{
    struct exec *exec = entry->spare;
    if (exec == NULL) return NULL;
    entry->spare = exec->next_free;
    cache->scratch_kept -= exec->scratch_bytes;
    return exec;
}

static void free_spares(struct plan_cache *cache, struct plan_cache_entry *entry)
{
    struct exec *exec;
    while ((exec = take_spare(cache, entry)) != NULL) exec_free(exec);
}

static void free_entry(struct plan_cache *cache, struct plan_cache_entry *entry)
{
    TAILQ_REMOVE(&cache->by_age, entry, age);
    LIST_REMOVE(entry, chain);
    if (cache->latest[entry->key.kind] == entry) cache->latest[entry->key.kind] = NULL;
    cache->n--;
    cache->bytes -= entry->bytes;
    free_spares(cache, entry);
    plan_free(entry->plan);
    free(entry->counts);
    free(entry);
}

void plan_cache_free(struct plan_cache *cache)
{
    if (cache == NULL) return;
    struct plan_cache_entry *entry;
    while ((entry = TAILQ_FIRST(&cache->by_age)) != NULL) free_entry(cache, entry);
    free(cache);
}

/* ---- the key ----------------------------------------------------------------------------------------------- */

static bool all_even(const tutti_op *op, int size)
{
    if (op->in_splits != NULL) return false;
    if (!op->list) return true;
    if (!tutti_kind_knows_blocks(op->kind)) return false;
    const tutti_tensor *list = tutti_kind_in_blocks(op->kind) ? op->in : op->out;
    for (int i = 1; i < size; i++)
        if (list[i].numel != list[0].numel) return false;
    return true;
}

static void make_key(const struct tutti_group *group, const tutti_backend *backend, const tutti_op *op, struct key *key)
{
    memset(key, 0, sizeof *key);
    key->backend = backend;
    key->kind = op->kind;
    key->root = op->root;
    key->element = (int32_t)tutti_dtype_bytes(op->dtype);
    key->count = tutti_op_block_numel(op, group->size);
    key->in_place = tutti_op_is_in_place(op, group->rank);
    bool reduces = tutti_kind_reduces(op->kind);
    struct user_op user_op;
    if (reduces && user_op_find(op->reduce_op, &user_op)) {
        key->user = true;
        key->ordered = !user_op.commutative;
        key->element *= (int32_t)user_op_units(&user_op);
        key->count /= user_op_units(&user_op);
    }
    key->average = reduces && op->reduce_op == TUTTI_AVG;
    key->premul = reduces && op->reduce_op == TUTTI_PREMUL_SUM;
    key->even = all_even(op, group->size);
    key->list = op->list;
    key->n_counts = key->even ? 0 : 2 * (uint32_t)group->size;
}

/* Fills the counts and offsets of one side's blocks.  tensors is NULL if the side has no blocks. */
static void fill_side(const tutti_tensor *tensors, const int64_t *splits, bool list, int64_t even, int size,
                      int64_t *count, int64_t *at)
{
    int64_t sum = 0;
    for (int i = 0; i < size; i++) {
        count[i] = tensors == NULL ? 0 : splits != NULL ? splits[i] : list ? tensors[i].numel : even;
        at[i] = sum;
        sum += count[i];
    }
}

static void fill_shape(struct shape *shape, const struct tutti_group *group, const tutti_op *op)
{
    int size = group->size;
    shape->in_blocks = tutti_kind_in_blocks(op->kind) && tutti_kind_has_in(op->kind, group->rank, op->root);
    shape->out_blocks = tutti_kind_out_blocks(op->kind) && tutti_kind_has_out(op->kind, group->rank, op->root);
    shape->in_list = shape->in_blocks && op->list;
    shape->out_list = shape->out_blocks && op->list;
    /* how many of the tensors' elements make one of the plan's */
    int64_t units = shape->key.user ? shape->key.element / tutti_dtype_bytes(op->dtype) : 1;
    int64_t *c = shape->counts, even = shape->key.count * units;
    fill_side(shape->in_blocks ? op->in : NULL, op->in_splits, shape->in_list, even, size, c, c + 2 * size);
    fill_side(shape->out_blocks ? op->out : NULL, op->out_splits, shape->out_list, even, size, c + size, c + 3 * size);
    for (int i = 0; units > 1 && i < 4 * size; i++) c[i] /= units;
}

static unsigned hash_of(const struct key *key)
{
    uint64_t h = (uint64_t)key->count * UINT64_C(0x9e3779b97f4a7c15);
    h ^= (uint64_t)(key->kind * 131 + key->root * 31 + key->element * 7 + key->in_place) * UINT64_C(0xc2b2ae3d27d4eb4f);
    return (unsigned)(h >> 58) % CACHE_BUCKETS;
}

static struct plan_cache_entry *find(struct plan_cache *cache, const struct shape *shape, unsigned bucket)
{
    struct plan_cache_entry *entry;
    LIST_FOREACH(entry, &cache->bucket[bucket], chain)
    {
        if (memcmp(&entry->key, &shape->key, sizeof entry->key) != 0) continue;
        if (shape->key.n_counts == 0 ||
            memcmp(entry->counts, shape->counts, shape->key.n_counts * sizeof(int64_t)) == 0)
            return entry;
    }
    return NULL;
}

/* ---- building ---------------------------------------------------------------------------------------------- */

static struct coll_blocks make_side(bool present, bool list, const int64_t *count, const int64_t *at)
{
    if (!present) return (struct coll_blocks){0};
    return (struct coll_blocks){list, count, list ? NULL : at};
}

struct coll_link plan_cache_link(const struct backend_entry *entry)
{
    const tutti_backend *backend = entry->backend;
    const tutti_link *between = &entry->links.between, *within = &entry->links.within;
    struct coll_link link = {.latency_ns = between->latency_ns,
                             .overhead_ns = between->overhead_ns,
                             .bytes_per_us = between->bytes_per_us,
                             .local_latency_ns = within->latency_ns,
                             .local_overhead_ns = within->overhead_ns,
                             .local_bytes_per_us = within->bytes_per_us,
                             .host_cores = entry->links.cores};
    if (link.latency_ns == 0 && TUTTI_HAS(backend, latency_ns)) link.latency_ns = backend->latency_ns;
    if (link.bytes_per_us == 0 && TUTTI_HAS(backend, bytes_per_us)) link.bytes_per_us = backend->bytes_per_us;
    if (TUTTI_HAS(backend, segment_bytes)) link.segment_bytes = backend->segment_bytes;
    return link;
}

/* Returns the backend's limit for recv_reduce, in elements. */
static int64_t find_recv_reduce_limit(const tutti_backend *backend, int64_t element)
{
    if (!TUTTI_HAS(backend, recv_reduce)) return PLAN_NEVER;
    return TUTTI_HAS(backend, recv_reduce_most) ? backend->recv_reduce_most / element : PLAN_ALWAYS;
}

static int build(const struct tutti_group *group, const struct backend_entry *backend_entry, const struct shape *shape,
                 const struct coll_algorithm **algorithm, struct coll_reason *reason, struct plan **plan)
{
    const struct key *key = &shape->key;
    int size = group->size;
    struct coll_link link = plan_cache_link(backend_entry);
    struct coll_args args = {
        .kind = key->kind == TUTTI_MONITORED_BARRIER ? TUTTI_BARRIER : (tutti_kind)key->kind,
        .rank = group->rank,
        .size = size,
        .root = key->root,
        .count = key->count,
        .in = make_side(shape->in_blocks, shape->in_list, shape->counts, shape->counts + 2 * size),
        .out = make_side(shape->out_blocks, shape->out_list, shape->counts + size, shape->counts + 3 * size),
        .even = key->even,
        .in_place = key->in_place,
        .average = key->average,
        .premul = key->premul,
        .ordered = key->ordered,
        .element = key->element,
        .link = &link,
        /* in a monitored barrier each rank receives from several others, not only from its host's leader */
        .hosts = key->kind != TUTTI_MONITORED_BARRIER ? backend_entry->hosts : NULL,
    };
    args.segment = coll_segment(&args);
    struct coll_override override = {group->algorithm, backend_entry->tuned.rows, backend_entry->tuned.n, group->paths};
    bool is_linear = key->kind == TUTTI_MONITORED_BARRIER && size <= MONITORED_MOST;
    if (is_linear && reason != NULL) *reason = (struct coll_reason){.by = COLL_BY_KIND};
    *algorithm = is_linear ? coll_find(TUTTI_BARRIER, "linear", 6) : coll_select(&args, &override, reason);
    if (*algorithm == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    int64_t fused = key->user ? PLAN_NEVER : find_recv_reduce_limit(backend_entry->backend, key->element);
    *plan = coll_build(*algorithm, &args, fused);
    return *plan != NULL ? TUTTI_OK
                         : error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a plan of group %s", group->name);
}

/* Returns the bytes of an entry. */
static size_t count_bytes(const struct plan_cache_entry *entry)
{
    const struct plan *plan = entry->plan;
    size_t steps = plan->n_steps,
           plans = steps * sizeof *plan->steps + (plan->n_next + plan->n_ready) * sizeof *plan->next;
    size_t runs = sizeof(struct exec) + steps * (sizeof(tutti_request) + 3 * sizeof(uint32_t));
    return sizeof *entry + sizeof *plan + entry->key.n_counts * sizeof *entry->counts + plans + runs;
}

size_t plan_cache_bytes(const struct plan_cache *cache)
{
    return cache->bytes;
}

/* Evicts the least recently used entries, unless they run, to make room for one of this size. */
static void evict(struct plan_cache *cache, size_t bytes)
{
    struct plan_cache_entry *entry, *before;
    for (entry = TAILQ_LAST(&cache->by_age, by_age_head); entry != NULL; entry = before) {
        if (cache->n < CACHE_MOST && cache->bytes + bytes <= CACHE_BYTES_MOST) return;
        before = TAILQ_PREV(entry, by_age_head, age);
        if (entry->running == 0) free_entry(cache, entry);
    }
}

static int insert(struct plan_cache *cache, const struct tutti_group *group, const struct backend_entry *backend_entry,
                  const struct shape *shape, unsigned bucket, struct plan_cache_entry **out)
{
    struct plan_cache_entry *entry = calloc(1, sizeof *entry);
    size_t bytes = shape->key.n_counts * sizeof(int64_t);
    if (entry != NULL && bytes > 0) entry->counts = malloc(bytes);
    if (entry == NULL || (bytes > 0 && entry->counts == NULL)) {
        free(entry);
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a plan of group %s", group->name);
    }
    if (bytes > 0) memcpy(entry->counts, shape->counts, bytes);
    entry->key = shape->key;
    const struct coll_algorithm *algorithm;
    int status = build(group, backend_entry, shape, &algorithm, NULL, &entry->plan);
    if (status != TUTTI_OK) {
        free(entry->counts);
        free(entry);
        return status;
    }
    entry->bytes = count_bytes(entry);
    evict(cache, entry->bytes);
    TAILQ_INSERT_HEAD(&cache->by_age, entry, age);
    LIST_INSERT_HEAD(&cache->bucket[bucket], entry, chain);
    cache->n++;
    cache->bytes += entry->bytes;
    *out = entry;
    return TUTTI_OK;
}

static int find_or_insert(struct plan_cache *cache, const struct tutti_group *group,
                          const struct backend_entry *backend_entry, const tutti_op *op,
                          struct plan_cache_entry **entry)
{
    struct shape shape = {0};
    make_key(group, backend_entry->backend, op, &shape.key);
    unsigned bucket = hash_of(&shape.key);
    *entry = shape.key.n_counts == 0 ? find(cache, &shape, bucket) : NULL;
    if (*entry != NULL) return TUTTI_OK;
    shape.counts = calloc(4 * (size_t)group->size, sizeof(int64_t));
    if (shape.counts == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a plan of group %s", group->name);
    fill_shape(&shape, group, op);
    if (shape.key.n_counts > 0) *entry = find(cache, &shape, bucket);
    int status = *entry == NULL ? insert(cache, group, backend_entry, &shape, bucket, entry) : TUTTI_OK;
    free(shape.counts);
    return status;
}

int plan_cache_take(struct plan_cache *cache, const struct tutti_group *group,
                    const struct backend_entry *backend_entry, const tutti_op *op, struct plan_cache_entry **out,
                    struct exec **exec)
{
    struct plan_cache_entry *entry = cache->latest[op->kind];
    if (entry == NULL || op->call == 0 || entry->call != op->call || entry->key.backend != backend_entry->backend) {
        int status = find_or_insert(cache, group, backend_entry, op, &entry);
        if (status != TUTTI_OK) return status;
        entry->call = op->call;
        cache->latest[op->kind] = entry;
    }
    if (TAILQ_FIRST(&cache->by_age) != entry) {
        TAILQ_REMOVE(&cache->by_age, entry, age);
        TAILQ_INSERT_HEAD(&cache->by_age, entry, age);
    }
    struct exec *found = take_spare(cache, entry);
    if (found == NULL) found = exec_new(entry->plan);
    if (found == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory to run a plan of group %s", group->name);
    entry->running++;
    *out = entry;
    *exec = found;
    return TUTTI_OK;
}

static void make_room(struct plan_cache *cache, size_t bytes)
{
    struct plan_cache_entry *old = TAILQ_LAST(&cache->by_age, by_age_head);
    for (; cache->scratch_kept + bytes > CACHE_SCRATCH_KEPT; old = TAILQ_PREV(old, by_age_head, age))
        free_spares(cache, old);
}

void plan_cache_give(struct plan_cache *cache, struct plan_cache_entry *entry, struct exec *exec)
{
    entry->running--;
    if (exec->status != TUTTI_OK || exec->left > 0 || exec->scratch_bytes > CACHE_SCRATCH_KEPT) {
        exec_free(exec);
        return;
    }
    if (cache->scratch_kept + exec->scratch_bytes > CACHE_SCRATCH_KEPT) make_room(cache, exec->scratch_bytes);
    exec->next_free = entry->spare;
    entry->spare = exec;
    cache->scratch_kept += exec->scratch_bytes;
}

int plan_cache_explain(const struct tutti_group *group, const struct backend_entry *backend_entry, const tutti_op *op,
                       const struct coll_algorithm **algorithm, struct coll_reason *reason, struct plan **plan)
{
    struct shape shape = {.counts = calloc(4 * (size_t)group->size, sizeof(int64_t))};
    if (shape.counts == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a plan of group %s", group->name);
    make_key(group, backend_entry->backend, op, &shape.key);
    fill_shape(&shape, group, op);
    int status = build(group, backend_entry, &shape, algorithm, reason, plan);
    free(shape.counts);
    return status;
}
