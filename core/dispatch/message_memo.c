#include "dispatch/message_memo.h"

#include "base/clock.h"
#include "base/dtype.h"
#include "dispatch/check.h"

/* Fills a work like those of such messages.  Their addresses, tags and options are added to a copy of it. */
static void fill_work(struct tutti_work *work, struct tutti_group *group, const tutti_op *op, size_t bytes,
                      uint64_t fingerprint, const struct backend_entry *entry)
{
    *work = (struct tutti_work){
        .engine = group->engine,
        .references = 2, /* the engine's and the caller's */
        .event_fd = -1,
        .found = {.source = -1, .received = (int64_t)bytes},
        .op = {.size = sizeof *op,
               .kind = op->kind,
               .dtype = op->dtype,
               .root = op->root,
               .n_in = op->n_in,
               .n_out = op->n_out},
        .group = group,
        .started = true,
        .point_to_point = true,
        .is_plain = true,
        .deadline_ns = CLOCK_NEVER,
        .fingerprint = fingerprint,
        .backend = entry->backend,
        .state = entry->state,
        .request = {.peer = op->root, .fingerprint = fingerprint, .bytes = bytes},
    };
}

/* True if the backend takes such messages with TUTTI_REQUEST_AT_ONCE. */
static bool may_end_at_once(size_t bytes, const tutti_backend *backend)
{
    return TUTTI_HAS(backend, traits) && (backend->traits & TUTTI_BACKEND_DEFERS) && bytes <= TUTTI_DEFERRED_MAX;
}

void message_memo_fill(struct tutti_group *group, int32_t given, const tutti_op *op, const tutti_opts *opts,
                       uint64_t fingerprint, const struct backend_entry *entry)
{
    struct message_memo *memo = message_memo_of(group, op->kind);
    const tutti_tensor *tensor = op->kind == TUTTI_SEND ? op->in : op->out;
    size_t bytes = op_tensor_bytes(tensor);
    memo->entry = entry;
    memo->tensor = *tensor;
    memo->given = given;
    memo->group_rank = opts->group_rank;
    memo->at_once = may_end_at_once(bytes, entry->backend);
    record_fill(&memo->record, op, fingerprint);
    fill_work(&memo->work, group, op, bytes, fingerprint, entry);
    memo->request = memo->work.request;
    memo->request.flags = TUTTI_REQUEST_AT_ONCE;
}

bool message_memo_translate(const struct tutti_group *group, struct message_memo *memo, int32_t peer,
                            const tutti_opts *opts)
{
    tutti_op op = {.kind = memo->work.op.kind, .root = peer};
    if (check_root(group, &op, opts) != TUTTI_OK) return false;
    memo->given = peer;
    memo->group_rank = opts->group_rank;
    memo->work.op.root = memo->work.request.peer = op.root;
    return true;
}
