/* What messages like a group's last one have in common: sends, or receives, of the same dtype and number of elements.
 * A program that sends many small messages sends nearly all of them alike.  Lock held for all functions. */
#ifndef MESSAGE_MEMO_H
#define MESSAGE_MEMO_H

#include "op/op.h"
#include "state/group_state.h"

/* Remembers a checked message with memory.  given: its peer as the caller named it.  entry: dispatch_entry of
 * op. */
void message_memo_fill(struct tutti_group *group, int32_t given, const tutti_op *op, const tutti_opts *opts,
                       uint64_t fingerprint, const struct backend_entry *entry);

/* Makes another peer than the last one that of the memo.  Returns false if there is no such peer. */
bool message_memo_translate(const struct tutti_group *group, struct message_memo *memo, int32_t peer,
                            const tutti_opts *opts);

static inline struct message_memo *message_memo_of(struct tutti_group *group, tutti_kind kind)
{
    return &group->messages[kind == TUTTI_SEND];
}

/* True if the message differs from the remembered ones in its peer, tag and memory alone.  Its check does not depend on
 * the address of its memory, nor its fingerprint on any of them. */
static inline __attribute__((always_inline)) bool
message_memo_is_alike(const struct message_memo *memo, const tutti_tensor *tensor, const tutti_opts *opts)
{
    if (memo->entry == NULL || opts->tag < 0 || opts->timeout_ms < 0 || tensor->data == NULL) return false;
    return op_is_same_shape(tensor, &memo->tensor);
}

/* Makes the caller's peer that of the memo.  Returns false if there is no such peer. */
static inline __attribute__((always_inline)) bool
message_memo_turn_to(const struct tutti_group *group, struct message_memo *memo, int32_t peer, const tutti_opts *opts)
{
    return (peer == memo->given && opts->group_rank == memo->group_rank) ||
           message_memo_translate(group, memo, peer, opts);
}

#endif
