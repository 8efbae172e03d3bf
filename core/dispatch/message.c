#include "dispatch/message.h"

#include <sched.h>

#include "base/sized.h"
#include "base/structs.h"
#include "dispatch/at_once.h"
#include "dispatch/coalesce.h"
#include "dispatch/dispatch.h"
#include "dispatch/message_memo.h"
#include "dispatch/submit.h"
#include "progress/engine_thread.h"

/* A message like the remembered ones. */
struct message {
    struct tutti_group *group;
    struct message_memo *memo;
    const tutti_tensor *tensor;
    const tutti_opts *opts;
    bool sends, async;
    int32_t root; /* its peer's rank in the group */
    uint32_t record;
};

/* True if the message can be issued with what is remembered, which is its peer, too, then. */
static inline __attribute__((always_inline)) bool is_usual(const struct message *message, int peer)
{
    struct tutti_group *group = message->group;
    const tutti_opts *opts = message->opts;
    return message_memo_is_alike(message->memo, message->tensor, opts) && opts->received == NULL &&
           group_is_usable(group) && group->tool == NULL && !coalesce_is_open(group) &&
           message_memo_turn_to(group, message->memo, peer, opts);
}

static inline __attribute__((always_inline)) void record_message(struct message *message)
{
    struct tutti_group *group = message->group;
    message->root = message->memo->work.op.root;
    message->record = record_issue_like(&group->record_messages, &group->engine->now_ns, &message->memo->record,
                                        message->root, message->opts->tag);
}

/* ---- handing a message to its backend ------------------------------------------------------------------------ */

static inline __attribute__((always_inline)) void fill_op(tutti_op *op, struct tutti_work *work,
                                                          const struct message *message)
{
    const tutti_opts *opts = message->opts;
    op->root = message->root;
    op->tag = opts->tag;
    op->stream = opts->stream;
    op->timeout_ms = group_timeout(message->group, opts->timeout_ms);
    op->async = message->async;
    op->in = op->out = work->tensors;
    work->tensors[0] = *message->tensor;
}

/* Makes a pending work, whose result, op and request are filled.  ended: the status of a request that has completed
 * already. */
static inline __attribute__((always_inline)) void become_pending(struct tutti_work *work, const struct message *message,
                                                                 int ended)
{
    enum { BEGIN = offsetof(struct tutti_work, group), END = offsetof(struct tutti_work, fingerprint) };
    const tutti_opts *opts = message->opts;
    structs_copy((char *)work + BEGIN, (const char *)&message->memo->work + BEGIN, END - BEGIN);
    work->async = message->async;
    work->group_rank = opts->group_rank;
    work->record = message->record;
    if (!message->sends) work->outs = (struct work_outs){opts->source, opts->received_tag, NULL};
    issue_detach_message(work, &work->op);
    issue_enlist_message(work);
    issue_count(message->group, &work->op);
    if (work->request.owner == NULL) at_once_end_work(work, ended);
}

/* Reports a message that has completed at once.  Returns what its Work has found. */
static inline __attribute__((always_inline)) struct work_message complete(const tutti_request *request,
                                                                          const struct message *message)
{
    struct tutti_group *group = message->group;
    const tutti_opts *opts = message->opts;
    struct work_message found = {.source = -1};
    record_end(&group->record_messages, message->record, TUTTI_OK, 0);
    issue_count(group, &message->memo->work.op);
    if (message->sends) return found;
    found = (struct work_message){.source = work_translate_rank(group, opts->group_rank, request->source),
                                  .tag = opts->tag,
                                  .received = (int64_t)request->bytes};
    if (opts->source != NULL) *opts->source = found.source;
    if (opts->received_tag != NULL) *opts->received_tag = found.tag;
    return found;
}

static inline __attribute__((always_inline)) void address(tutti_request *request, int32_t peer, int32_t tag, void *data)
{
    request->peer = peer;
    request->tag = DISPATCH_MESSAGE_TAG | (uint64_t)tag;
    request->data = data;
}

/* Fills the request of a struct that is not a work yet: see dispatch_at_once. */
static inline __attribute__((always_inline)) void fill_request(struct tutti_work *work, const struct message *message)
{
    enum { BEGIN = offsetof(struct tutti_work, fingerprint), END = offsetof(struct tutti_work, tensors) };
    structs_copy((char *)work + BEGIN, (const char *)&message->memo->work + BEGIN, END - BEGIN);
    work->group = NULL;
    work->request.owner = work;
    address(&work->request, message->root, message->opts->tag, message->tensor->data);
}

/* Calls the backend of a work with a request, which need not be the work's own. */
static inline __attribute__((always_inline)) int call_backend(const struct tutti_work *work, tutti_request *request,
                                                              bool sends)
{
    return sends ? work->backend->send(work->state, request) : work->backend->recv(work->state, request);
}

/* Ends the message as any other operation, because it has failed or its backend does not take it. */
__attribute__((noinline)) static int refuse(struct tutti_work *work, const struct message *message, int status,
                                            struct tutti_work **out)
{
    engine_settle(message->group->engine);
    work->op = message->memo->work.op;
    fill_op(&work->op, work, message);
    return at_once_finish(work, message->group, &work->op, work->fingerprint, message->opts, message->record, status,
                          out);
}

/* Asks the backend to complete a message within the call, without a work: returns what the backend does. */
static inline __attribute__((always_inline)) int try_at_once(struct message_memo *memo, bool sends, int32_t peer,
                                                             int32_t tag, void *data)
{
    address(&memo->request, peer, tag, data);
    return call_backend(&memo->work, &memo->request, sends);
}

/* Issues a usual message with a work.  status: what try_at_once has returned; its error goes to the work.  Returns what
 * submit_at_once does. */
static inline __attribute__((always_inline)) int issue_work(struct tutti_work *work, struct message *message,
                                                            int status, struct tutti_work **out)
{
    struct engine *engine = message->group->engine;
    fill_request(work, message);
    work->request.flags = message->async ? 0 : TUTTI_REQUEST_AWAITED;
    if (message->opts->timeout_ms == TUTTI_NOW) work->request.flags |= TUTTI_REQUEST_NOW;
    if (status < 0)
        work->request = message->memo->request;
    else
        status = call_backend(work, &work->request, message->sends);
    if (status == TUTTI_REQUEST_DONE) {
        struct work_message found = complete(&work->request, message);
        at_once_give(work, engine, &message->memo->work.op, message->async ? &found : NULL, out);
    } else if (status == TUTTI_REQUEST_PENDING) {
        int ended = work->status;
        structs_copy(work, &message->memo->work, offsetof(struct tutti_work, group));
        work->found.tag = message->opts->tag;
        fill_op(&work->op, work, message);
        become_pending(work, message, ended);
        *out = work;
    } else {
        struct message kept = *message; /* a copy, so that the message itself can be in registers */
        status = refuse(work, &kept, status, out);
    }
    return status;
}

/* Sends a message for which send has not returned DONE at once, but `status`.  Not inline, so that nearly all messages
 * save no registers for it. */
__attribute__((noinline)) static int send_later(struct tutti_work *work, struct message *message, int status,
                                                struct tutti_work **out)
{
    return issue_work(work, message, status, out);
}

/* Issues a usual message.  Returns what submit_at_once does. */
static inline __attribute__((always_inline)) int issue(struct message *message, struct tutti_work **out)
{
    struct engine *engine = message->group->engine;
    struct message_memo *memo = message->memo;
    struct tutti_work *work = work_spare(engine);
    if (work == NULL) return TUTTI_ERR_UNSUPPORTED;
    record_message(message);
    if (!message->sends || !memo->at_once) return issue_work(work, message, TUTTI_REQUEST_ABSENT, out);
    int status = try_at_once(memo, true, message->root, message->opts->tag, message->tensor->data);
    if (status != TUTTI_REQUEST_DONE) {
        struct message kept = *message; /* a copy, so that the message itself can be in registers */
        return send_later(work, &kept, status, out);
    }
    struct work_message found = complete(&memo->request, message);
    if (message->async) {
        work_end_at_once(work, engine, &memo->work.op, &found);
        *out = work;
    } else {
        work_give_back(engine, work);
    }
    return TUTTI_REQUEST_DONE;
}

/* ---- deferred receives ----------------------------------------------------------------------------------------
 *
 * A receive that the backend gets at once is posted, and found again when its message arrives.  If the message is
 * there first, both are for nothing.  So a small asynchronous receive only leaves what it was called with, and its
 * backend gets it with the next operation of another kind: by then many messages have arrived.  Most such receives fill
 * two cache lines of their Work, those of its result, so that many fit into the first-level cache. */

/* The beginning of a work, which the handle's functions read, some of them without the lock. */
enum { RESULT_END = offsetof(struct tutti_work, op) + offsetof(tutti_op, n_in) };

/* Keeps a receive until the lock is next taken by engine_lock. */
static inline __attribute__((always_inline)) struct tutti_work *defer(struct message *message)
{
    struct engine *engine = message->group->engine;
    const tutti_opts *opts = message->opts;
    struct tutti_work *work = work_spare(engine);
    if (work == NULL) return NULL;
    record_message(message);
    structs_copy(work, &message->memo->work, RESULT_END);
    work->op.tag = work->found.tag = opts->tag;
    engine->deferred[engine->n_deferred++] = (struct deferred_receive){.work = work,
                                                                       .group = message->group,
                                                                       .data = message->tensor->data,
                                                                       .timeout_ms = opts->timeout_ms,
                                                                       .source = opts->source,
                                                                       .received_tag = opts->received_tag,
                                                                       .record = message->record,
                                                                       .group_rank = opts->group_rank};
    return work;
}

/* Ends a deferred receive that has completed.  Other threads may read its work meanwhile. */
static void end_deferred(struct tutti_work *work, struct work_message found)
{
    work->references = 1; /* the caller's */
    work->found = found;
    /* release: see work_ended */
    atomic_store_explicit(&work->ended, true, memory_order_release);
}

/* Hands a deferred receive to its backend, or ends it with the error that try_at_once has returned. */
__attribute__((noinline)) static void post_deferred(struct tutti_work *work, struct message *message, void *data,
                                                    int status)
{
    const struct message_memo *memo = message->memo;
    tutti_tensor tensor = memo->tensor;
    tensor.data = data;
    message->tensor = &tensor;
    structs_copy((char *)work + RESULT_END, (const char *)&memo->work + RESULT_END,
                 offsetof(struct tutti_work, group) - RESULT_END);
    fill_op(&work->op, work, message);
    fill_request(work, message);
    if (status < 0)
        work->request = memo->request;
    else
        status = call_backend(work, &work->request, false);
    if (status == TUTTI_REQUEST_DONE) {
        end_deferred(work, complete(&work->request, message));
        return;
    }
    if (status != TUTTI_REQUEST_PENDING) work->request.owner = NULL;
    become_pending(work, message, status == TUTTI_REQUEST_PENDING ? work->status : status);
}

/* Takes up one deferred receive.  Returns false if its message is absent, and it is not to be posted. */
static bool take_deferred(struct engine *engine, const struct deferred_receive *receive, bool posts)
{
    struct tutti_group *group = receive->group;
    struct message_memo *memo = &group->messages[false];
    struct tutti_work *work = receive->work;
    tutti_opts opts = {.tag = work->op.tag,
                       .timeout_ms = receive->timeout_ms,
                       .source = receive->source,
                       .received_tag = receive->received_tag,
                       .group_rank = receive->group_rank};
    struct message message = {
        group, memo, NULL, &opts, .async = true, .root = work->op.root, .record = receive->record};
    int status = posts ? TUTTI_REQUEST_PENDING : try_at_once(memo, false, work->op.root, work->op.tag, receive->data);
    if (status == TUTTI_REQUEST_ABSENT) return false;
    if (status == TUTTI_REQUEST_DONE)
        end_deferred(work, complete(&memo->request, &message));
    else
        post_deferred(work, &message, receive->data, status);
    engine_count_async(engine, -1); /* last: the progress thread sleeps if it finds none */
    return true;
}

/* Looks for the messages in order.  Once one is absent, all others are, most likely.  The receives are posted then, but
 * after a turn for the peers that share this core, which may send them. */
void message_issue_deferred(struct engine *engine, bool waits)
{
    bool yields = waits && !engine->own_core, posts = false;
    for (int i = 0; i < engine->n_deferred;) {
        if (take_deferred(engine, &engine->deferred[i], posts)) {
            i++;
            continue;
        }
        if (yields)
            sched_yield();
        else
            posts = true;
        yields = false;
    }
    engine->n_deferred = 0;
}

/* Defers an asynchronous receive.  Returns false if there is no memory. */
static inline __attribute__((always_inline)) bool submit_deferred(struct message *message, tutti_work **out)
{
    struct engine *engine = message->group->engine;
    struct tutti_work *work = defer(message);
    if (work == NULL) return false;
    engine_count_async(engine, 1);
    if (atomic_load_explicit(&engine->n_async, memory_order_relaxed) == 1) engine_thread_notify(engine);
    if (engine_has_offer(engine)) {
        engine_settle(engine);
        engine_take_round(engine);
    }
    at_once_hand_out(work, out);
    return true;
}

/* ---- calls --------------------------------------------------------------------------------------------------- */

int message_issue(struct tutti_group *group, bool sends, const tutti_tensor *tensor, int peer, const tutti_opts *opts,
                  struct tutti_work **work)
{
    struct message message = {group, &group->messages[sends], tensor, opts, sends, .async = true};
    return is_usual(&message, peer) ? issue(&message, work) : TUTTI_ERR_UNSUPPORTED;
}

/* Submits the message if it is like the remembered ones.  Returns UNSUPPORTED if nothing has begun. */
static inline __attribute__((always_inline)) int submit_usual(bool sends, const tutti_tensor *tensor, int peer,
                                                              const tutti_opts *opts, tutti_work **out)
{
    static const tutti_opts defaults;
    if (opts == NULL) opts = &defaults;
    struct tutti_group *group = group_for_call(opts->group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    struct engine *engine = group->engine;
    struct message message = {group, &group->messages[sends], tensor, opts, sends, .async = out != NULL};
    struct tutti_work *work = NULL;
    engine_lock_deferring(engine);
    if (engine->n_deferred == DEFERRED_MOST) engine_settle(engine);
    if (!is_usual(&message, peer)) {
        engine_unlock(engine);
        return TUTTI_ERR_UNSUPPORTED;
    }
    engine_count_call(engine);
    if (!sends && message.async && message.memo->at_once && opts->stream == NULL && submit_deferred(&message, out)) {
        engine_unlock(engine);
        return TUTTI_OK;
    }
    if (!sends) engine_settle(engine); /* earlier receives come first */
    int status = issue(&message, &work);
    if (status == TUTTI_REQUEST_PENDING) {
        engine_settle(engine);
        return submit_finish(group, work, out);
    }
    if (status == TUTTI_REQUEST_DONE && out != NULL) at_once_hand_out(work, out);
    engine_unlock(engine);
    return status == TUTTI_REQUEST_DONE ? TUTTI_OK : status;
}

static inline __attribute__((always_inline)) int submit_kind(bool sends, const tutti_tensor *tensor, int peer,
                                                             const tutti_opts *opts, size_t opts_bytes,
                                                             tutti_work **work)
{
    tutti_opts copy;
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    if (status != TUTTI_OK) return status;
    if (work == NULL && opts != NULL) work = opts->async_op;
    status = submit_usual(sends, tensor, peer, opts, work);
    if (status != TUTTI_ERR_UNSUPPORTED) return status;
    tutti_op op = {.kind = sends ? TUTTI_SEND : TUTTI_RECV, .root = peer};
    if (sends) {
        op.n_in = 1;
        op.in = tensor;
    } else {
        op.n_out = 1;
        op.out = tensor;
    }
    return submit_to(&op, opts, work);
}

int message_send(const tutti_tensor *tensor, int dst, const tutti_opts *opts, size_t opts_bytes, tutti_work **work)
{
    return submit_kind(true, tensor, dst, opts, opts_bytes, work);
}

int message_receive(const tutti_tensor *tensor, int src, const tutti_opts *opts, size_t opts_bytes, tutti_work **work)
{
    return submit_kind(false, tensor, src, opts, opts_bytes, work);
}
