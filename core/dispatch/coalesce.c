#include "dispatch/coalesce.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/user_op.h"
#include "dispatch/hazards.h"
#include "dispatch/launch.h"
#include "dispatch/packing.h"
#include "group/group.h"
#include "group/group_check.h"
#include "op/op.h"
#include "progress/engine_thread.h"
#include "progress/engine_wait.h"
#include "progress/work.h"

enum { PACK_EACH = 64 << 10, PACK_ALL = 4 << 20 }; /* bytes; copying more costs more than a message */

struct kept {
    tutti_op op;
    tutti_opts opts;
    void *lists; /* copy of op's tensors and splits */
};

/* The operations that this thread coalesces, on one group at a time.  The group is held, so that no later group gets
 * its address. */
static _Thread_local struct run {
    struct tutti_group *group;
    struct kept *kept;
    int n, capacity;
} open_now;

atomic_int coalesce_n_open;

bool coalesce_is_mine(const struct tutti_group *group)
{
    return open_now.group == group;
}

/* Frees a run and drops its reference to the group.  Lock not held. */
static void free_run(void *argument)
{
    struct run *run = argument;
    struct tutti_group *group = run->group;
    for (int i = 0; i < run->n; i++) {
        free(run->kept[i].lists);
        user_op_drop(run->kept[i].op.reduce_op);
    }
    free(run->kept);
    *run = (struct run){0};
    if (group == NULL) return;
    atomic_fetch_sub_explicit(&coalesce_n_open, 1, memory_order_relaxed);
    group_drop(group);
}

static pthread_key_t at_thread_end;
static bool has_key; /* without a key, a thread that ends within a range leaks its run */

static void make_key(void)
{
    has_key = pthread_key_create(&at_thread_end, free_run) == 0;
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
    if (open_now.n == open_now.capacity) {
        int capacity = open_now.capacity > 0 ? 2 * open_now.capacity : 16;
        struct kept *more = realloc(open_now.kept, (size_t)capacity * sizeof *more);
        if (more == NULL)
            return error_set(TUTTI_ERR_NO_MEMORY, "out of memory to coalesce more than %d operations", open_now.n);
        open_now.kept = more;
        open_now.capacity = capacity;
    }
    struct kept *kept = &open_now.kept[open_now.n];
    *kept = (struct kept){.op = *op, .opts = *opts};
    int status = op_keep_lists(&kept->op, group->size, NULL, 0, &kept->lists);
    if (status != TUTTI_OK) return status;
    user_op_hold(op->reduce_op);
    open_now.n++;
    return TUTTI_OK;
}

int tutti_coalesce_begin(tutti_group *group)
{
    group = group_for_call(group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (open_now.group != NULL && is_shut(open_now.group))
        free_run(&open_now); /* the group has been destroyed, so the range cannot be ended */
    if (open_now.group != NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "coalesce_begin: this thread already coalesces on group %s; call coalesce_end first",
                         open_now.group->name);
    if (group->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "coalesce_begin: this rank is not in group %s; only members may call this", group->name);
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
    /* relaxed: only this thread has to see it */
    atomic_fetch_add_explicit(&coalesce_n_open, 1, memory_order_relaxed);
    return TUTTI_OK;
}

/* ---- packing ----------------------------------------------------------------------------------------------- */

static size_t bytes_of(const tutti_op *op)
{
    return op_tensor_bytes(&op->out[0]);
}

/* True for small all_reduces and broadcasts.  False for reduce, because ranks other than root do not know its
 * output. */
static bool can_pack(const tutti_op *op)
{
    return (op->kind == TUTTI_ALL_REDUCE || op->kind == TUTTI_BROADCAST) && op->out[0].device.type == TUTTI_CPU &&
           bytes_of(op) <= PACK_EACH;
}

/* True if two operations can share a message.  All ranks must decide alike, so the timeout, which may differ between
 * them, does not count. */
static bool is_alike(const tutti_op *a, const tutti_op *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->root == b->root && a->reduce_op == b->reduce_op &&
           (a->reduce_op != TUTTI_PREMUL_SUM || a->factor == b->factor);
}

/* True if op shares memory with an earlier operation of the run, whose result it must see.  Broadcasts see none: their
 * root only reads, and the others only write, in the order of the run. */
static bool conflicts_with_run(const struct kept *run, int n, const tutti_op *op)
{
    if (op->kind == TUTTI_BROADCAST) return false;
    for (int i = 0; i < n; i++)
        if (hazards_conflicts(&run[i].op, op)) return true;
    return false;
}

/* Returns how many of the kept operations, from the first one on, are packed into one.  The number is the same on all
 * ranks, because sizes and shared memory are (see tutti.h). */
static int run_length(const struct kept *first, int most)
{
    if (!can_pack(&first->op)) return 1;
    size_t total = bytes_of(&first->op);
    int n = 1;
    while (n < most && can_pack(&first[n].op) && is_alike(&first->op, &first[n].op) &&
           total + bytes_of(&first[n].op) <= PACK_ALL && !conflicts_with_run(first, n, &first[n].op))
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

/* Makes one operation of n.  Returns NULL if there is no memory. */
static struct packing *pack(const struct tutti_group *group, const struct kept *run, int n, tutti_op *op,
                            tutti_tensor *whole)
{
    size_t total = 0;
    for (int i = 0; i < n; i++) total += bytes_of(&run[i].op);
    struct packing *packing = packing_new(n, total);
    if (packing == NULL) return NULL;
    for (int i = 0; i < n; i++) packing_add(packing, &run[i].op, op_is_source(&run[i].op, group->rank));
    *op = run[0].op;
    *whole = run[0].op.out[0];
    whole->data = packing->memory;
    whole->numel = (int64_t)total / tutti_dtype_bytes(op->dtype);
    op->out = whole;
    op->in = op->n_in > 0 ? whole : NULL;
    return packing;
}

/* Calls coalesce of all backends.  Returns the last error, or TUTTI_OK. */
static int mark_backends(struct tutti_group *group, bool begins)
{
    int status = TUTTI_OK;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device]; i++) {
            const struct backend_entry *entry = &group->entries[device][i];
            if (entry->state == NULL || !TUTTI_HAS(entry->backend, coalesce)) continue;
            int one = entry->backend->coalesce(entry->state, begins);
            if (one != TUTTI_OK) status = one;
        }
    return status;
}

int coalesce_mark(struct tutti_group *group)
{
    return mark_backends(group, true);
}

int coalesce_unmark(struct tutti_group *group, int status)
{
    char text[ERROR_TEXT_MAX]; /* message of the first error */
    snprintf(text, sizeof text, "%s", error_text());
    int ended = mark_backends(group, false);
    return status == TUTTI_OK ? ended : error_set(status, "%s", text);
}

/* ---- the end ----------------------------------------------------------------------------------------------- */

/* Makes the Work of the whole run.  It does nothing itself and ends with its last part. */
static struct tutti_work *new_parent(struct tutti_group *group)
{
    struct engine *engine = group->engine;
    struct tutti_work *parent = work_take(engine);
    if (parent == NULL) return NULL;
    parent->group = group;
    parent->op = (tutti_op){.size = sizeof parent->op, .kind = TUTTI_COALESCED, .root = -1};
    parent->point_to_point = parent->started = parent->async = true;
    parent->start_ns = parent->asked_ns = clock_now_ns();
    parent->deadline_ns = CLOCK_NEVER; /* its parts have deadlines */
    parent->parts = 1;                 /* kept above 0 until all parts are launched */
    parent->references = 2;            /* one for the engine, one for the caller */
    engine_count_async(engine, 1);
    TAILQ_INSERT_TAIL(&engine->active, parent, link);
    TAILQ_INSERT_TAIL(&group->works, parent, group_link);
    return parent;
}

static int launch_run(struct tutti_group *group, const struct kept *run, int n, struct tutti_work *parent, bool *staged)
{
    tutti_op op = run[0].op;
    tutti_opts opts = run[0].opts;
    tutti_tensor whole;
    struct packing *packing = NULL;
    if (n > 1) {
        opts.timeout_ms = shortest_timeout(group, run, n);
        if (opts.timeout_ms == 0) opts.timeout_ms = TUTTI_NOW;
        packing = pack(group, run, n, &op, &whole);
        if (packing == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory to pack %d operations", n);
    }
    return launch_part(group, &op, &opts, parent, packing, staged);
}

/* Launches all kept operations.  The marked range ends after each staged operation: the next one may have to wait for
 * it, and no operation may wait within a marked range.  All ranks end the range after the same operations, so they
 * start the same operations together. */
static int launch_all(struct tutti_group *group, const struct run *run, struct tutti_work *parent)
{
    int status = TUTTI_OK;
    bool marked = false;
    for (int i = 0, n; status == TUTTI_OK && i < run->n; i += n) {
        bool staged = false;
        n = run_length(&run->kept[i], run->n - i);
        status = launch_after_staged(group, &run->kept[i].op);
        if (status == TUTTI_OK && !marked && !group->shut) {
            marked = true;
            status = coalesce_mark(group);
        }
        if (status == TUTTI_OK) status = launch_run(group, &run->kept[i], n, parent, &staged);
        if (marked && staged) status = coalesce_unmark(group, status);
        marked &= !staged;
    }
    return marked ? coalesce_unmark(group, status) : status;
}

int tutti_coalesce_end(tutti_group *group, tutti_work **work)
{
    group = group_for_call(group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (open_now.group != group)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "coalesce_end: this thread does not coalesce on group %s; call coalesce_begin first",
                         group->name);
    struct run run = open_now; /* later calls, made by callbacks, are not part of this range */
    open_now = (struct run){0};
    struct engine *engine = group->engine; /* free_run drops the group at the end */
    engine_lock(engine);
    engine_count_call(engine);
    struct tutti_work *parent = new_parent(group);
    int status = parent != NULL
                     ? TUTTI_OK
                     : error_set(TUTTI_ERR_NO_MEMORY, "out of memory for %d coalesced operations of group %s", run.n,
                                 group->name);
    if (status == TUTTI_OK) status = launch_all(group, &run, parent);
    if (parent != NULL) {
        if (status != TUTTI_OK && parent->failing == TUTTI_OK) {
            parent->failing = status;
            parent->text = strdup(error_text());
        }
        if (--parent->parts == 0 && !work_ended(parent)) work_end(parent, parent->failing, NULL);
        if (status == TUTTI_OK && work != NULL) {
            if (!work_ended(parent)) engine_thread_notify(engine);
            engine_add_handle(engine);
            *work = parent;
        } else {
            if (!work_ended(parent)) engine_wait(engine, parent, CLOCK_NEVER);
            status = work_result(parent);
            work_release_locked(parent);
        }
    }
    engine_unlock(engine);
    free_run(&run);
    return status;
}
