#include "dispatch/coalesce.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "dispatch/hazards.h"
#include "dispatch/submit.h"
#include "group/group.h"
#include "op/op.h"
#include "progress/engine_thread.h"
#include "progress/engine_wait.h"
#include "progress/work.h"

enum { PACK_EACH = 64 << 10, PACK_ALL = 4 << 20 }; /* bytes: above, copying costs more than a message */

struct kept {
    tutti_op op;
    tutti_opts opts;
    void *lists; /* op's tensors and splits, copied */
};

/* What this thread has begun; one group at a time, which is held, so that no later one has its address. */
static _Thread_local struct run {
    struct tutti_group *group;
    struct kept *kept;
    int n, room;
} open_now;

/* Where the results of a packed operation go. */
struct coalesce_packing {
    char *memory;
    int n;
    struct {
        void *data;
        size_t bytes;
    } part[];
};

atomic_int coalesce_n_open;

bool coalesce_is_mine(const struct tutti_group *group)
{
    return open_now.group == group;
}

/* Without the lock. */
static void forget(void *argument)
{
    struct run *run = argument;
    struct tutti_group *group = run->group;
    for (int i = 0; i < run->n; i++) free(run->kept[i].lists);
    free(run->kept);
    *run = (struct run){0};
    if (group == NULL) return;
    atomic_fetch_sub_explicit(&coalesce_n_open, 1, memory_order_relaxed);
    group_drop(group);
}

static pthread_key_t at_thread_end;
static bool has_key; /* without one a thread that ends meanwhile leaves its run behind */

static void make_key(void)
{
    has_key = pthread_key_create(&at_thread_end, forget) == 0;
}

static bool is_shut(const struct tutti_group *group)
{
    engine_lock(group->engine);
    bool shut = group->shut;
    engine_unlock(group->engine);
    return shut;
}

int coalesce_add(struct tutti_group *group, const tutti_op *op, const tutti_opts *opts)
{
    if (open_now.n == open_now.room) {
        int room = open_now.room > 0 ? 2 * open_now.room : 16;
        struct kept *more = realloc(open_now.kept, (size_t)room * sizeof *more);
        if (more == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory to coalesce an operation");
        open_now.kept = more;
        open_now.room = room;
    }
    struct kept *kept = &open_now.kept[open_now.n];
    *kept = (struct kept){.opts = *opts};
    int status = op_copy(&kept->op, op, group->size, NULL, 0, &kept->lists);
    if (status == TUTTI_OK) open_now.n++;
    return status;
}

int tutti_coalesce_begin(tutti_group *group)
{
    group = group_for_call(group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (open_now.group != NULL && is_shut(open_now.group))
        forget(&open_now); /* destroyed meanwhile: there is nothing to end */
    if (open_now.group != NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "coalesce_begin: this thread coalesces on group %s already",
                         open_now.group->name);
    if (group->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "coalesce_begin: this rank is not in group %s", group->name);
    engine_lock(group->engine);
    engine_count_call(group->engine);
    int status = group_check_usable(group, "coalesce_begin");
    engine_unlock(group->engine);
    if (status != TUTTI_OK) return status;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_key);
    if (has_key) pthread_setspecific(at_thread_end, &open_now);
    group_hold(group);
    open_now.group = group;
    /* relaxed: this thread sees it in any case, and for the others it does not count */
    atomic_fetch_add_explicit(&coalesce_n_open, 1, memory_order_relaxed);
    return TUTTI_OK;
}

/* ---- packing ----------------------------------------------------------------------------------------------- */

static size_t bytes_of(const tutti_op *op)
{
    return (size_t)(op->out[0].numel * tutti_dtype_bytes(op->dtype));
}

/* The root's own output of a reduce is not known on the others, so reduce is left alone. */
static bool can_pack(const tutti_op *op)
{
    return (op->kind == TUTTI_ALL_REDUCE || op->kind == TUTTI_BROADCAST) && op->out[0].device.type == TUTTI_CPU &&
           bytes_of(op) <= PACK_EACH;
}

/* All ranks have to find the same, so what may differ from rank to rank, a timeout, does not count. */
static bool alike(const tutti_op *a, const tutti_op *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->root == b->root && a->reduce_op == b->reduce_op &&
           (a->reduce_op != TUTTI_PREMUL_SUM || a->factor == b->factor);
}

/* One that writes what an earlier one of the run reads or writes must see its result; a root may well broadcast one
 * tensor several times. */
static bool meets(const struct tutti_group *group, const struct kept *run, int n, const tutti_op *op)
{
    if (op_is_source(op, group->rank)) return false;
    for (int i = 0; i < n; i++)
        if (hazards_conflicts(&run[i].op, op)) return true;
    return false;
}

/* How many of the kept operations from the first one on go into one; the same on all ranks, whose sizes are alike, and
 * so is which of them use each other's memory (see tutti.h). */
static int run_length(const struct tutti_group *group, const struct kept *first, int most)
{
    if (!can_pack(&first->op)) return 1;
    size_t total = bytes_of(&first->op);
    int n = 1;
    while (n < most && can_pack(&first[n].op) && alike(&first->op, &first[n].op) &&
           total + bytes_of(&first[n].op) <= PACK_ALL && !meets(group, first, n, &first[n].op))
        total += bytes_of(&first[n++].op);
    return n;
}

static int64_t shortest_timeout(const struct tutti_group *group, const struct kept *run, int n)
{
    int64_t shortest = TUTTI_INFINITE;
    for (int i = 0; i < n; i++) {
        int64_t own = group_timeout(group, run[i].opts.timeout_ms);
        if (own < shortest) shortest = own;
    }
    return shortest;
}

static struct coalesce_packing *pack(const struct tutti_group *group, const struct kept *run, int n, tutti_op *op,
                                     tutti_tensor *whole)
{
    size_t total = 0;
    for (int i = 0; i < n; i++) total += bytes_of(&run[i].op);
    struct coalesce_packing *packing = malloc(sizeof *packing + (size_t)n * sizeof packing->part[0]);
    char *memory = malloc(total > 0 ? total : 1);
    if (packing == NULL || memory == NULL) {
        free(packing);
        free(memory);
        return NULL;
    }
    packing->memory = memory;
    packing->n = op_is_source(&run[0].op, group->rank) ? 0 : n;
    for (int i = 0; i < n; i++) {
        size_t bytes = bytes_of(&run[i].op);
        const void *from = run[i].op.n_in > 0 ? run[i].op.in[0].data : run[i].op.out[0].data;
        if (bytes > 0) memcpy(memory, from, bytes);
        packing->part[i].data = run[i].op.out[0].data;
        packing->part[i].bytes = bytes;
        memory += bytes;
    }
    *op = run[0].op;
    *whole = run[0].op.out[0];
    whole->data = packing->memory;
    whole->numel = (int64_t)total / tutti_dtype_bytes(op->dtype);
    op->out = whole;
    op->in = op->n_in > 0 ? whole : NULL;
    return packing;
}

void coalesce_drop(struct coalesce_packing *packing)
{
    if (packing == NULL) return;
    free(packing->memory);
    free(packing);
}

void coalesce_part_ended(struct tutti_work *work, int status)
{
    struct coalesce_packing *packing = work->packing;
    if (packing == NULL) return;
    const char *from = packing->memory;
    for (int i = 0; i < packing->n && status == TUTTI_OK; i++) {
        if (packing->part[i].bytes > 0) memcpy(packing->part[i].data, from, packing->part[i].bytes);
        from += packing->part[i].bytes;
    }
    coalesce_drop(packing);
    work->packing = NULL;
}

int coalesce_tell(struct tutti_group *group, bool begin)
{
    int status = TUTTI_OK;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++) {
            const struct backend_entry *entry = &group->entries[device][i];
            if (entry->state == NULL || !TUTTI_HAS(entry->backend, coalesce)) continue;
            int one = entry->backend->coalesce(entry->state, begin);
            if (one != TUTTI_OK) status = one;
        }
    return status;
}

/* ---- the end ----------------------------------------------------------------------------------------------- */

/* The Work of the whole: nothing itself, it ends with its last part. */
static struct tutti_work *new_parent(struct tutti_group *group)
{
    struct engine *engine = group->engine;
    struct tutti_work *parent = work_take(engine);
    if (parent == NULL) return NULL;
    parent->group = group;
    parent->op.kind = TUTTI_COALESCED;
    parent->op.root = -1;
    parent->point_to_point = parent->started = parent->async = true;
    parent->start_ns = parent->asked_ns = clock_now_ns();
    parent->deadline_ns = CLOCK_NEVER; /* its parts have theirs */
    parent->parts = 1;                 /* until all are begun */
    parent->references = 2;            /* the engine's and the caller's */
    engine->n_async++;
    TAILQ_INSERT_TAIL(&engine->active, parent, link);
    TAILQ_INSERT_TAIL(&group->works, parent, group_link);
    return parent;
}

static int begin_run(struct tutti_group *group, const struct kept *run, int n, struct tutti_work *parent, bool *staged)
{
    tutti_op op = run[0].op;
    tutti_opts opts = run[0].opts;
    tutti_tensor whole;
    struct coalesce_packing *packing = NULL;
    if (n > 1) {
        opts.timeout_ms = shortest_timeout(group, run, n);
        if (opts.timeout_ms == 0) opts.timeout_ms = TUTTI_NOW;
        packing = pack(group, run, n, &op, &whole);
        if (packing == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory to pack %d operations", n);
    }
    return submit_part(group, &op, &opts, parent, packing, staged);
}

int coalesce_tell_end(struct tutti_group *group, int status)
{
    char text[ERROR_TEXT_MAX]; /* the first error's */
    snprintf(text, sizeof text, "%s", error_text());
    int ended = coalesce_tell(group, false);
    return status == TUTTI_OK ? ended : error_set(status, "%s", text);
}

/* What the backends may start together ends behind each operation that is staged, for the next one may have to wait for
 * that one, and nothing is waited for in between.  Behind each: all ranks then start the same ones together. */
static int begin_all(struct tutti_group *group, const struct run *run, struct tutti_work *parent)
{
    int status = TUTTI_OK;
    bool told = false;
    for (int i = 0, n; status == TUTTI_OK && i < run->n; i += n) {
        bool staged = false;
        n = run_length(group, &run->kept[i], run->n - i);
        status = submit_make_way(group, &run->kept[i].op);
        if (status == TUTTI_OK && !told && !group->shut) {
            told = true;
            status = coalesce_tell(group, true);
        }
        if (status == TUTTI_OK) status = begin_run(group, &run->kept[i], n, parent, &staged);
        if (told && staged) status = coalesce_tell_end(group, status);
        told &= !staged;
    }
    return told ? coalesce_tell_end(group, status) : status;
}

int tutti_coalesce_end(tutti_group *group, tutti_work **work)
{
    group = group_for_call(group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (open_now.group != group)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "coalesce_end: this thread has not begun to coalesce on group %s",
                         group->name);
    struct run run = open_now; /* what callbacks begin from here on is no part of it */
    open_now = (struct run){0};
    struct engine *engine = group->engine; /* the group is held until the end */
    engine_lock(engine);
    engine_count_call(engine);
    struct tutti_work *parent = new_parent(group);
    int status = parent != NULL ? TUTTI_OK : error_set(TUTTI_ERR_NO_MEMORY, "no memory for an operation");
    if (status == TUTTI_OK) status = begin_all(group, &run, parent);
    if (parent != NULL) {
        if (status != TUTTI_OK && parent->failing == TUTTI_OK) {
            parent->failing = status;
            parent->text = strdup(error_text());
        }
        if (--parent->parts == 0 && !work_ended(parent)) work_end(parent, parent->failing, NULL);
        if (status == TUTTI_OK && work != NULL) {
            if (!work_ended(parent)) engine_thread_notify(engine);
            engine_hold(engine);
            *work = parent;
        } else {
            if (!work_ended(parent)) engine_wait(engine, parent, CLOCK_NEVER);
            status = work_result(parent);
            work_release_locked(parent);
        }
    }
    engine_unlock(engine);
    forget(&run);
    return status;
}
