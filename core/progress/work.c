#include "progress/work.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/structs.h"
#include "base/user_op.h"
#include "portable/wake.h"
#include "progress/plan_cache.h"
#include "state/group_state.h"
#include "tool/tool.h"

enum { SPARE_MOST = 256, DRAIN_NS = 2000 * 1000 * 1000 };

/* ---- creation and release ---------------------------------------------------------------------------------------- */

struct tutti_work *work_spare(struct engine *engine)
{
    struct tutti_work *work = SLIST_FIRST(&engine->spare);
    if (work == NULL) return malloc(sizeof *work);
    SLIST_REMOVE_HEAD(&engine->spare, spare_link);
    engine->n_spare--;
    return work;
}

void work_give_back(struct engine *engine, struct tutti_work *work)
{
    if (engine->n_spare == SPARE_MOST) {
        free(work);
        return;
    }
    SLIST_INSERT_HEAD(&engine->spare, work, spare_link);
    engine->n_spare++;
}

static void clear_result(struct tutti_work *work, struct engine *engine)
{
    structs_clear(work, offsetof(struct tutti_work, op));
    work->engine = engine;
    work->references = 1;
    work->event_fd = -1;
    work->found.source = -1;
}

void work_clear(struct tutti_work *work, struct engine *engine)
{
    enum { BEGIN = offsetof(struct tutti_work, group), END = offsetof(struct tutti_work, fingerprint) };
    clear_result(work, engine);
    structs_clear((char *)work + BEGIN, END - BEGIN);
}

void work_end_at_once(struct tutti_work *work, struct engine *engine, const tutti_op *op,
                      const struct work_message *found)
{
    clear_result(work, engine);
    work->op.kind = op->kind;
    work->op.sequence = op->sequence;
    work->found = *found;
    /* relaxed: no other thread has the work yet */
    atomic_store_explicit(&work->ended, true, memory_order_relaxed);
}

struct tutti_work *work_take(struct engine *engine)
{
    struct tutti_work *work = work_spare(engine);
    if (work == NULL) return NULL;
    work_clear(work, engine);
    work->fingerprint = 0;
    work->exec = NULL;
    work->cached = NULL;
    work->backend = NULL;
    work->state = NULL;
    work->request.owner = NULL;
    return work;
}

/* Not inline: few works have any of these. */
__attribute__((noinline)) static void free_parts(struct tutti_work *work)
{
    free(work->text);
    free(work->lists);
    user_op_drop(work->user_op);
    if (work->event_fd >= 0) close(work->event_fd);
}

void work_release_locked(struct tutti_work *work)
{
    if (--work->references > 0) return;
    struct engine *engine = work->engine;
    if (work->text != NULL || work->lists != NULL || work->user_op != 0 || work->event_fd >= 0) free_parts(work);
    work_give_back(engine, work);
}

void work_release(struct tutti_work *work)
{
    struct engine *engine = work->engine;
    engine_lock(engine);
    work_release_locked(work);
    engine_unlock(engine);
}

void work_call_back(struct tutti_work *work)
{
    work->callback(work, work->argument);
    work_release(work);
}

void work_give_up(struct tutti_work *work)
{
    struct engine *engine = work->engine;
    engine_lock(engine);
    work_release_locked(work);
    bool last = engine_remove_handles(engine, 1);
    engine_unlock(engine);
    if (last) engine_drop(engine);
}

/* Writes "recv from rank 1, tag 5, of group world". */
static void describe_message(const struct tutti_work *work, char *text, size_t size)
{
    char peer[24] = "any rank", tag[24] = "any tag";
    const tutti_op *op = &work->op;
    if (op->root >= 0) snprintf(peer, sizeof peer, "rank %d", work->group->global_ranks[op->root]);
    if (op->tag >= 0) snprintf(tag, sizeof tag, "tag %d", op->tag);
    snprintf(text, size, "%s %s %s, %s, of group %s", tutti_kind_find(op->kind)->name,
             op->kind == TUTTI_SEND ? "to" : "from", peer, tag, work->group->name);
}

void work_describe(const struct tutti_work *work, char *text, size_t size)
{
    if (work->op.kind == TUTTI_COPY) work = work->parent;
    const char *kind = tutti_kind_find(work->op.kind)->name, *group = work->group->name;
    if (work->op.sequence > 0)
        snprintf(text, size, "%s #%" PRIu64 " of group %s", kind, work->op.sequence, group);
    else if (!work_is_message(work))
        snprintf(text, size, "%s of group %s", kind, group);
    else
        describe_message(work, text, size);
}

/* ---- ending ------------------------------------------------------------------------------------------------ */

void work_release_exec(struct tutti_work *work)
{
    struct exec *exec = work->exec;
    if (exec == NULL) return;
    if (exec->in_flight > 0) {
        for (uint32_t i = 0; i < exec->plan->n_steps; i++) exec->requests[i].owner = NULL;
    } else {
        plan_cache_give(work->group->cache, work->cached, exec);
    }
    work->exec = NULL;
}

void work_dequeue(struct tutti_work *work)
{
    if (work->queued) TAILQ_REMOVE(&work->engine->runnable, work, run_link);
    work->queued = false;
}

/* Appends the work's age to its error message, unless the message of a TIMEOUT has it. */
static void append_age(struct tutti_work *work, int status)
{
    bool has_age = status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_ABORTED;
    char *longer = NULL;
    if (!has_age || work->text == NULL || strstr(work->text, "under way for ") != NULL) return;
    /* A blocking call's clock starts once it has waited for a while. */
    double seconds = work->start_ns > 0 ? (double)(clock_now_ns() - work->start_ns) / 1e9 : 0;
    if (asprintf(&longer, "%.*s (under way for %.3f s)", ERROR_TEXT_MAX - 40, work->text, seconds) < 0) return;
    free(work->text);
    work->text = longer;
}

/* Keeps the message of a work that ends with an error, and passes it to the parent. */
static void keep_error(struct tutti_work *work, int status, const char *text)
{
    struct tutti_work *parent = work->parent;
    if (work->text == NULL) work->text = strdup(text != NULL ? text : error_text());
    append_age(work, status);
    if (parent == NULL || parent->failing != TUTTI_OK) return;
    parent->failing = status;
    parent->text = work->text != NULL ? strdup(work->text) : NULL;
}

/* True if the failure is that of an operation of the program.  A probe that finds nothing has not failed, and the parts
 * of a staged operation fail with it. */
static bool counts_failure(const struct tutti_work *work)
{
    int kind = work->op.kind;
    return kind != TUTTI_PROBE && kind != TUTTI_COALESCED && kind != TUTTI_COPY && work->entry == NULL;
}

/* True in the progress thread. */
static bool is_in_thread(const struct engine *engine)
{
    return engine->has_thread && pthread_equal(pthread_self(), engine->thread) != 0;
}

/* Ends what a plain work that has succeeded does not have. */
__attribute__((noinline)) static void end_parts(struct tutti_work *work, int status, const char *text)
{
    struct engine *engine = work->engine;
    if (work->packing != NULL) engine->hooks->part_ended(work, status);
    if (status != TUTTI_OK) keep_error(work, status, text);
    if (status != TUTTI_OK && counts_failure(work)) work->group->stats->failed++;
    if (work->entry != NULL && work->found.source >= 0) work->parent->found = work->found;
    if (work->stage != NULL) engine->hooks->stage_ended(work->stage);
    if (work->op.tool != NULL) {
        if (status == TUTTI_OK) tool_op_found(work->op.tool, &work->request);
        tool_op_end(work->op.tool, status, work->text, is_in_thread(engine));
    }
    if (work->comparing != NULL) engine->n_comparing--;
    work->comparing = NULL;
    work_release_exec(work);
    work_dequeue(work);
}

void work_delist(struct tutti_work *work)
{
    struct engine *engine = work->engine;
    TAILQ_REMOVE(&engine->active, work, link);
    TAILQ_REMOVE(&work->group->works, work, group_link);
    if (work->enlisted) work->group->n_enlisted--;
    if (!work->started) engine->n_blocked--;
    if (work->async) engine_count_async(engine, -1);
}

void work_end(struct tutti_work *work, int status, const char *text)
{
    struct engine *engine = work->engine;
    struct tutti_work *parent = work->parent;
    struct tutti_group *group = work->group;
    if (work_ended(work)) return;
    bool awaited = work->awaited;
    work->status = status;
    if (work->start_ns > 0 && work->duration_ns == 0) work->duration_ns = engine_time_ns(engine) - work->start_ns;
    record_end(group_record(group, work->op.sequence), work->record, status, work->start_ns > 0 ? engine->now_ns : 0);
    if (status == TUTTI_OK) work_report_message(&work->outs, &work->found);
    if (!work->is_plain || status != TUTTI_OK) end_parts(work, status, text);
    work_delist(work);
    /* release: see work_ended */
    atomic_store_explicit(&work->ended, true, memory_order_release);
    /* After `ended`, because the woken thread reads the status without the lock. */
    if (work->event_fd >= 0) wake_send(work->event_fd);
    if (work->callback != NULL)
        TAILQ_INSERT_TAIL(&engine->callbacks, work, link); /* keeps the engine's reference until the callback has run */
    else
        work_release_locked(work);
    engine->recheck = true;
    if (awaited) engine_wake_waiters(engine);
    if (parent != NULL && --parent->parts == 0) work_end(parent, parent->failing, NULL);
}

int work_result(const struct tutti_work *work)
{
    return work->status == TUTTI_OK ? TUTTI_OK : error_set(work->status, "%s", work->text != NULL ? work->text : "");
}

/* Cancels those of the work's requests that the backend can cancel. */
static void withdraw(struct tutti_work *work, int status)
{
    if (work->exec != NULL) {
        exec_cancel(work->exec, status);
    } else if (work->request.owner != NULL && TUTTI_HAS(work->backend, cancel) &&
               work->backend->cancel(work->state, &work->request) == TUTTI_OK) {
        work->request.owner = NULL;
    }
}

static bool is_with_backend(const struct tutti_work *work)
{
    return work->exec != NULL ? work->exec->in_flight > 0 : work->request.owner != NULL;
}

void work_withdraw(struct tutti_work *work, int status, const char *text)
{
    if (work->started) withdraw(work, status);
    if (!work->started || !is_with_backend(work)) {
        work_end(work, status, text);
        return;
    }
    work->failing = status;
    if (work->text == NULL) work->text = strdup(text != NULL ? text : error_text());
    work->draining = true;
    work->engine->due_ns = 0;
    work->deadline_ns = clock_now_ns() + DRAIN_NS;
}

void work_abandon(struct tutti_work *work)
{
    log_write(LOG_WARN, LOG_OP, "%s cannot cancel a failed operation: its tensors stay in use and must stay valid",
              work->exec != NULL ? work->exec->run.backend->name : work->backend->name);
    if (work->exec == NULL) work->references++; /* never dropped: the request is part of the work */
    work->request.owner = NULL;
    work_end(work, work->failing, NULL);
}

void work_closed(struct tutti_work *work)
{
    if (work->exec != NULL) work->exec->in_flight = 0;
    work->request.owner = NULL;
    work_end(work, work->failing != TUTTI_OK ? work->failing : TUTTI_ERR_ABORTED,
             "the group was destroyed before the operation ended");
}

/* Records the first failure.  The work ends with it in its next turn, outside of the backend's entries. */
static void record_failure(struct tutti_work *work, const tutti_request *request, int status)
{
    if (work->failing != TUTTI_OK) return;
    char text[ERROR_TEXT_MAX];
    work->engine->hooks->describe_failure(work, request, status, text, sizeof text);
    work->failing = status;
    work->text = strdup(text);
    work_queue_run(work);
}

/* ---- running ----------------------------------------------------------------------------------------------- */

void work_queue_run(struct tutti_work *work)
{
    if (work->queued) return;
    work->queued = true;
    TAILQ_INSERT_TAIL(&work->engine->runnable, work, run_link);
}

void work_run(struct tutti_work *work)
{
    work->asked_ns = clock_now_ns(); /* puts off its next question to peers */
    work->has_moved = true;
    if (work->draining) {
        if (!is_with_backend(work)) work_end(work, work->failing, NULL);
        return;
    }
    if (work->failing == TUTTI_OK) {
        bool more = exec_advance(work->exec);
        if (work->exec->status != TUTTI_OK) {
            record_failure(work, work->exec->failed, work->exec->status);
        } else if (work->exec->left == 0 && work->comparing != NULL) {
            int status = work->engine->hooks->resume(work);
            if (status >= 0) return;
            record_failure(work, NULL, status);
        } else if (work->exec->left == 0) {
            work_end(work, TUTTI_OK, NULL);
            return;
        } else if (more) {
            work_queue_run(work);
            return;
        }
    }
    if (work->failing != TUTTI_OK) work->engine->hooks->end_failed(work, work->failing);
}

struct work_outs work_outs_of(const tutti_op *op, const tutti_opts *opts)
{
    if (!op_is_message(op) || op->kind == TUTTI_SEND) return (struct work_outs){NULL, NULL, NULL};
    return (struct work_outs){opts->source, opts->received_tag, opts->received};
}

struct work_message work_read_message(const struct tutti_group *group, const tutti_op *op, bool group_rank,
                                      const tutti_request *request)
{
    struct work_message found = {.source = -1};
    if (!op_is_message(op) || op->kind == TUTTI_SEND) return found;
    found.source = work_translate_rank(group, group_rank, request->source);
    found.tag = op->tag == TUTTI_ANY_TAG ? (int)(request->found_tag & INT32_MAX) : op->tag;
    found.received = (int64_t)(op->kind == TUTTI_PROBE ? request->found_bytes : request->bytes);
    return found;
}

void work_report_message(const struct work_outs *outs, const struct work_message *found)
{
    if (outs->source != NULL) *outs->source = found->source;
    if (outs->tag != NULL) *outs->tag = found->tag;
    if (outs->received != NULL) *outs->received = found->received;
}

/* Reads what the work's request has found.  That of a plain work knows its tag and size. */
static inline void read_message(struct tutti_work *work, const tutti_request *request)
{
    if (!work->is_plain)
        work->found = work_read_message(work->group, &work->op, work->group_rank, request);
    else if (work->op.kind == TUTTI_RECV)
        work->found.source = work_translate_rank(work->group, work->group_rank, request->source);
}

void work_complete(tutti_request *request, int status)
{
    struct tutti_work *work = request->owner;
    if (work == NULL) return;  /* request of an abandoned operation */
    if (work->group == NULL) { /* not a work yet: see dispatch_at_once */
        if (work->exec != NULL) {
            exec_complete(work->exec, request, status);
        } else {
            request->owner = NULL;
            work->status = status;
        }
        return;
    }
    if (work->exec != NULL) {
        exec_complete(work->exec, request, status);
        if (status != TUTTI_OK) record_failure(work, request, status);
        work_queue_run(work);
        return;
    }
    request->owner = NULL;
    read_message(work, request);
    if (work->draining)
        work_end(work, work->failing, NULL);
    else if (status == TUTTI_OK)
        work_end(work, TUTTI_OK, NULL);
    else
        record_failure(work, request, status);
}

void work_took(tutti_request *request, int64_t ns)
{
    struct tutti_work *work = request->owner;
    if (work != NULL && work->exec == NULL) work->duration_ns = ns > 0 ? ns : 1;
}

void work_start_clock(struct tutti_work *work, int64_t now)
{
    bool never = work->op.timeout_ms >= INT64_MAX / 2000000;
    work->start_ns = work->asked_ns = now;
    work->deadline_ns = never ? CLOCK_NEVER : now + work->op.timeout_ms * 1000000;
}
