#include "dispatch/message.h"

#include <stddef.h>
#include <string.h>

#include "base/clear.h"
#include "base/sized.h"
#include "dispatch/at_once.h"
#include "dispatch/check.h"
#include "dispatch/coalesce.h"
#include "dispatch/dispatch.h"
#include "dispatch/submit.h"

/* ---- what messages have in common ---------------------------------------------------------------------------- */

/* True if the message differs from the remembered ones in its peer, tag and memory alone.  Its check does not depend on
 * the address of its memory, nor its fingerprint on any of them. */
static inline bool is_alike(const struct message_memo *memo, const tutti_tensor *tensor, const tutti_opts *opts)
{
    enum { BEGIN = offsetof(tutti_tensor, numel), END = offsetof(tutti_tensor, device) + sizeof(tutti_device) };
    if (opts->tag < 0 || opts->timeout_ms < 0 || opts->received != NULL || tensor->data == NULL) return false;
    return memcmp((const char *)tensor + BEGIN, (const char *)&memo->tensor + BEGIN, END - BEGIN) == 0; /* no padding */
}

/* Translates another peer than the last one.  Returns false if there is no such peer. */
__attribute__((noinline)) static bool translate(const struct tutti_group *group, struct message_memo *memo, int peer,
                                                const tutti_opts *opts)
{
    tutti_op op = {.kind = memo->op.kind, .root = peer};
    if (check_root(group, &op, opts) != TUTTI_OK) return false;
    memo->given = peer;
    memo->group_rank = opts->group_rank;
    memo->root = op.root;
    return true;
}

/* True if the message can be submitted with what is remembered, which is its peer, too, then. */
static inline bool is_usual(const struct tutti_group *group, struct message_memo *memo, const tutti_tensor *tensor,
                            int peer, const tutti_opts *opts)
{
    if (memo->entry == NULL || !is_alike(memo, tensor, opts)) return false;
    if (!group_is_usable(group) || group->tool != NULL || coalesce_is_open(group)) return false;
    return (peer == memo->given && opts->group_rank == memo->group_rank) || translate(group, memo, peer, opts);
}

/* ---- one message --------------------------------------------------------------------------------------------- */

static inline void fill_op(struct tutti_work *work, const struct tutti_group *group, const struct message_memo *memo,
                           const tutti_tensor *tensor, const tutti_opts *opts, bool async)
{
    tutti_op *op = &work->op;
    *op = memo->op;
    op->root = memo->root;
    op->tag = opts->tag;
    op->stream = opts->stream;
    op->timeout_ms = group_timeout(group, opts->timeout_ms);
    op->async = async;
    op->in = op->out = work->tensors;
    work->tensors[0] = *tensor;
}

/* Fills the request of a struct that is not a work yet: see dispatch_at_once. */
static inline tutti_request *fill_request(struct tutti_work *work, const struct message_memo *memo, bool async)
{
    tutti_request *request = &work->request;
    work->fingerprint = memo->fingerprint;
    work->group = NULL;
    work->exec = NULL;
    work->backend = memo->entry->backend;
    work->state = memo->entry->state;
    clear(request, sizeof *request);
    request->owner = work;
    request->flags = async ? 0 : TUTTI_REQUEST_AWAITED;
    request->peer = memo->root;
    request->tag = DISPATCH_MESSAGE_TAG | (uint64_t)work->op.tag;
    request->fingerprint = memo->fingerprint;
    request->data = work->tensors[0].data;
    request->bytes = memo->bytes;
    return request;
}

/* Hands the message to its backend.  Returns what submit_at_once does. */
static inline __attribute__((always_inline)) int issue(struct tutti_group *group, const struct message_memo *memo,
                                                       bool sends, const tutti_tensor *tensor, const tutti_opts *opts,
                                                       bool async, struct tutti_work **work)
{
    struct tutti_work *own = *work;
    fill_op(own, group, memo, tensor, opts, async);
    uint32_t record =
        record_issue_like(&group->record_messages, &group->engine->now_ns, &memo->record, memo->root, opts->tag);
    tutti_request *request = fill_request(own, memo, async);
    int status = sends ? own->backend->send(own->state, request) : own->backend->recv(own->state, request);
    return at_once_finish(own, group, &own->op, memo->fingerprint, opts, record, status, work);
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
    struct message_memo *memo = &group->messages[sends];
    struct tutti_work *work = NULL;
    engine_lock(engine);
    if (!is_usual(group, memo, tensor, peer, opts) || (work = work_spare(engine)) == NULL) {
        engine_unlock(engine);
        return TUTTI_ERR_UNSUPPORTED;
    }
    engine_count_call(engine);
    int status = issue(group, memo, sends, tensor, opts, out != NULL, &work);
    if (status == TUTTI_REQUEST_PENDING) return submit_finish(group, work, out);
    if (status == TUTTI_REQUEST_DONE && out != NULL) at_once_hand_out(work, out);
    engine_unlock(engine);
    return status == TUTTI_REQUEST_DONE ? TUTTI_OK : status;
}

/* ---- calls --------------------------------------------------------------------------------------------------- */

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
