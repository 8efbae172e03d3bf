#include "dispatch/call_memo.h"

#include <stdlib.h>

#include "base/user_op.h"
#include "dispatch/check.h"
#include "dispatch/dispatch.h"
#include "dispatch/message_memo.h"
#include "op/fingerprint.h"
#include "op/op.h"
#include "state/group_state.h"

enum { LIST_MOST = 128 }; /* tensors of a call that is remembered */

/* True if the call can be compared quickly.  A factor is checked with its op, and an op of the program may have been
 * freed. */
static bool is_plain(const tutti_op *op)
{
    return (!op->list || op->n_in + op->n_out <= LIST_MOST) && op->in_splits == NULL && op->out_splits == NULL &&
           op->reduce_op != TUTTI_PREMUL_SUM && !user_op_is(op->reduce_op);
}

static bool are_same(const tutti_tensor *a, const tutti_tensor *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i].data != b[i].data || !op_is_same_shape(&a[i], &b[i])) return false;
    return true;
}

/* True if a call with lists has the tensors of the last one. */
static bool repeats_lists(const struct call_memo *last, const tutti_op *op)
{
    if (op->n_in != last->n_in || op->n_out != last->n_out) return false;
    if ((op->n_in > 0) != (op->in != NULL) || (op->n_out > 0) != (op->out != NULL)) return false; /* is refused */
    return are_same(op->in, last->listed, op->n_in) && are_same(op->out, last->listed + op->n_in, op->n_out);
}

/* True if the call differs from the last one in its memory at most, or not at all if it has lists.  The last one is
 * plain. */
static bool repeats(const struct call_memo *last, const tutti_op *op, const tutti_opts *opts)
{
    if (last->call == 0 || opts->tag < 0 || opts->timeout_ms < 0) return false;
    if (op->list != last->list || op->in_splits != NULL || op->out_splits != NULL) return false;
    if (op->root != last->given_root || opts->group_rank != last->group_rank || op->reduce_op != last->reduce_op)
        return false;
    if (op->list) return repeats_lists(last, op);
    return (last->n_in == 0 || op_is_same_shape(op->in, &last->in)) &&
           (last->n_out == 0 || op_is_same_shape(op->out, &last->out));
}

static bool has_same_memory(const struct call_memo *last, const tutti_op *op)
{
    if (op->list) return true; /* see repeats */
    return (last->n_in == 0 || op->in->data == last->in.data) && (last->n_out == 0 || op->out->data == last->out.data);
}

/* True if the check of a call with one tensor holds for another address of its memory. */
static bool may_replace_memory(const struct call_memo *last, const tutti_op *op)
{
    bool is_one = last->n_in == 0 || last->n_out == 0 || op->in == op->out;
    return last->any_memory && is_one && (last->n_in > 0 ? op->in : op->out)->data != NULL;
}

/* Replaces the memory of the last call by that of op.  What backends know of a call depends on its memory. */
static void replace_memory(struct tutti_group *group, struct call_memo *last, const tutti_op *op)
{
    last->call = ++group->calls;
    if (last->n_in > 0) last->in.data = op->in->data;
    if (last->n_out > 0) last->out.data = op->out->data;
}

/* Copies the tensors of a call with lists.  Returns false if there is no memory. */
static bool keep_lists(struct call_memo *last, const tutti_op *op)
{
    size_t n = (size_t)op->n_in + (size_t)op->n_out;
    tutti_tensor *listed = realloc(last->listed, (n > 0 ? n : 1) * sizeof *listed);
    if (listed == NULL) return false;
    last->listed = listed;
    for (int i = 0; i < op->n_in; i++) listed[i] = op->in[i];
    for (int i = 0; i < op->n_out; i++) listed[op->n_in + i] = op->out[i];
    return true;
}

static void remember(struct tutti_group *group, struct call_memo *last, int32_t given_root, const tutti_op *op,
                     const tutti_opts *opts, uint64_t fingerprint)
{
    *last = (struct call_memo){.call = op->call,
                               .form = op->form,
                               .listed = last->listed,
                               .list = op->list,
                               .fingerprint = fingerprint,
                               .given_root = given_root,
                               .group_rank = opts->group_rank,
                               .reduce_op = op->reduce_op,
                               .root = op->root,
                               .n_in = op->n_in,
                               .n_out = op->n_out,
                               .dtype = op->dtype,
                               .entry = dispatch_entry(group, op)};
    if (op->list) {
        if (!keep_lists(last, op)) last->call = 0;
        return;
    }
    if (op->n_in > 0) last->in = *op->in;
    if (op->n_out > 0) last->out = *op->out;
    bool is_one = op->n_in == 0 || op->n_out == 0 || op->in == op->out;
    last->any_memory = is_one && (op->n_in > 0 ? last->in.data : last->out.data) != NULL;
    if (last->entry != NULL && last->any_memory && op_is_message(op))
        message_memo_fill(group, given_root, op, opts, fingerprint, last->entry);
}

/* Does call_memo_check's work for other calls than messages like the group's last ones. */
static int check_other(struct tutti_group *group, tutti_op *op, const tutti_opts *opts, struct checked_call *call)
{
    struct call_memo *last = &group->call_memos[op->kind];
    int32_t given_root = op->root;
    bool is_alike_but_memory = repeats(last, op, opts), is_same = is_alike_but_memory && has_same_memory(last, op);
    if (is_same || (is_alike_but_memory && may_replace_memory(last, op))) {
        if (!is_same) replace_memory(group, last, op);
        op->root = last->root;
        op->n_in = last->n_in;
        op->n_out = last->n_out;
        op->dtype = last->dtype;
        op->call = last->call;
        op->form = last->form;
        *call = (struct checked_call){last->fingerprint, last->entry};
        return TUTTI_OK;
    }
    int status = check_op(group, op, opts);
    if (status != TUTTI_OK) return status;
    *call = (struct checked_call){fingerprint_of(op, group->size), NULL};
    if (!is_plain(op)) return TUTTI_OK;
    op->call = op->form = ++group->calls;
    remember(group, last, given_root, op, opts, call->fingerprint);
    call->entry = last->entry;
    return TUTTI_OK;
}

/* Does call_memo_check's work for a send or receive. */
__attribute__((noinline)) static int check_message(struct tutti_group *group, tutti_op *op, const tutti_opts *opts,
                                                   struct checked_call *call)
{
    struct message_memo *memo = message_memo_of(group, op->kind);
    const tutti_tensor *tensor = op->kind == TUTTI_SEND ? op->in : op->out;
    if (!message_memo_is_alike(memo, tensor, opts) || !message_memo_turn_to(group, memo, op->root, opts))
        return check_other(group, op, opts, call);
    op->root = memo->work.op.root;
    op->dtype = memo->work.op.dtype;
    *call = (struct checked_call){memo->work.fingerprint, memo->entry};
    return TUTTI_OK;
}

int call_memo_check(struct tutti_group *group, tutti_op *op, const tutti_opts *opts, struct checked_call *call)
{
    bool transfers = op->kind == TUTTI_SEND || op->kind == TUTTI_RECV;
    return transfers ? check_message(group, op, opts, call) : check_other(group, op, opts, call);
}
