/* The protocol's part of a group: opening, closing, the record of closed groups, and control messages. */
#include <stdlib.h>

#include "tcp/p2p/proto.h"

#define HASH_NONFATAL_OOM 1 /* by default uthash ends the process if out of memory */
#include <uthash.h>

int32_t proto_group_rank(const struct proto_group *group, int32_t global)
{
    return tutti_match_rank(group->global_ranks, group->world_size, global);
}

void proto_add_group(struct proto *proto, struct proto_group *group)
{
    group->proto = proto;
    LIST_INSERT_HEAD(&proto->groups, group, link);
}

/* ---- closed groups ------------------------------------------------------------------------------------------- */

struct proto_closed {
    uint64_t group;
    UT_hash_handle hh;
};

/* Returns a new entry, or that of the group that was closed first, which is the table's first. */
static struct proto_closed *take_closed(struct proto *proto)
{
    struct proto_closed *oldest = proto->closed;
    if (HASH_COUNT(proto->closed) < PROTO_CLOSED_MOST) return malloc(sizeof *oldest);
    HASH_DEL(proto->closed, oldest);
    return oldest;
}

/* Remembers the group.  Late messages of a group that is not remembered are kept until the tree is closed, and their
 * credit with them. */
static void remember(struct proto *proto, uint64_t group)
{
    struct proto_closed *closed = take_closed(proto);
    if (closed == NULL) return;
    closed->group = group;
    HASH_ADD(hh, proto->closed, group, sizeof closed->group, closed);
    if (closed->hh.tbl == NULL) free(closed);
}

bool proto_is_closed(const struct proto *proto, uint64_t group)
{
    const struct proto_closed *closed;
    HASH_FIND(hh, proto->closed, &group, sizeof group, closed);
    return closed != NULL;
}

void proto_free_closed(struct proto *proto)
{
    struct proto_closed *closed, *next;
    HASH_ITER(hh, proto->closed, closed, next)
    {
        HASH_DEL(proto->closed, closed);
        free(closed);
    }
}

/* Answers RTS_READ with FIN, RTS with NACK, and an eager message with credit.  The sends of the first two fail. */
void proto_reject(struct proto *proto, const struct transport_header *header)
{
    int32_t peer = (int32_t)header->source;
    struct transport_header fin = {.kind = KIND_FIN, .ref = header->id, .flags = KIND_WITHDRAWN};
    if (header->kind == KIND_RTS_READ) proto_transmit(proto, peer, &fin, NULL, 0);
    if (header->kind == KIND_RTS) proto_send_nack(proto, peer, KIND_NACK_SEND, header->id, NULL);
    if (header->kind == KIND_EAGER) proto_return_credit(proto, peer, header->bytes);
}

static struct proto_arrival *first_of_group(const tutti_matcher *matcher, uint64_t group)
{
    tutti_match_message *message = tutti_match_next_message(matcher, NULL);
    while (message != NULL && message->key.group != group) message = tutti_match_next_message(matcher, message);
    return (struct proto_arrival *)(void *)message; /* the message is its first member */
}

/* Restarts the search after each message, because an answer may drop the link and free other arrivals. */
static void reject_arrivals(struct proto *proto, tutti_matcher *matcher, uint64_t group)
{
    struct proto_arrival *arrival;
    while ((arrival = first_of_group(matcher, group)) != NULL) {
        tutti_match_take(matcher, &arrival->match);
        proto_reject(proto, &arrival->header);
        proto_free_arrival(proto, arrival);
    }
}

/* ---- closing ------------------------------------------------------------------------------------------------- */

/* True if a peer may be using the operation's memory. */
static bool is_in_use(const struct proto_op *op)
{
    return op->state == PROTO_RECV_EXPOSED || op->state == PROTO_SEND_WRITING || op->is_readable;
}

static bool has_op_in_use(const struct proto *proto, const struct proto_group *group)
{
    for (size_t i = 0; i < proto->n_slots; i++) {
        const struct proto_op *op = proto->slot[i];
        if (op->request != NULL && proto_group_of(op) == group && is_in_use(op)) return true;
    }
    return false;
}

/* Reclaims the group's memory: asks the peers, waits for a while, then drops the links of those that do not answer. */
static void reclaim_memory(struct proto *proto, struct proto_group *group)
{
    for (size_t i = 0; i < proto->n_slots; i++) {
        struct proto_op *op = proto->slot[i];
        if (op->request != NULL && proto_group_of(op) == group && !op->cancelled) proto_cancel(group, op->request);
    }
    if (!has_op_in_use(proto, group)) return;
    int64_t end_ns = proto->host->now_ns() + 2 * (int64_t)PROTO_REVOKE_MS * 1000000;
    while (has_op_in_use(proto, group) && proto->host->now_ns() < end_ns) proto_progress(proto);
    for (size_t i = 0; i < proto->n_slots; i++) {
        struct proto_op *op = proto->slot[i];
        if (op->request == NULL || proto_group_of(op) != group) continue;
        if (is_in_use(op)) proto_drop(proto, op->peer, "it did not return the memory of a closed group");
    }
}

void proto_remove_group(struct proto_group *group)
{
    struct proto *proto = group->proto;
    if (proto == NULL) return;
    LIST_REMOVE(group, link);
    group->closing = true;
    /* Receives without an operation are found by this alone. */
    tutti_match_withdraw_group(&proto->messages, group->id);
    tutti_match_withdraw_group(&proto->grants, group->id);
    if (proto->closing) return; /* the tree ends, and dropping the links drops all pending operations */
    reclaim_memory(proto, group);
    for (size_t i = 0; i < proto->n_slots; i++) {
        const struct proto_op *op = proto->slot[i];
        if (op->request != NULL && proto_group_of(op) == group) proto_withdraw(proto, op->request);
    }
    if (group->world_size > 1) remember(proto, group->id); /* no other rank sends messages to a group of one */
    reject_arrivals(proto, &proto->messages, group->id);
    reject_arrivals(proto, &proto->grants, group->id);
    group->proto = NULL;
}

/* ---- control messages ---------------------------------------------------------------------------------------- */

static int send_control(struct proto_group *group, int32_t peer, const void *message, size_t bytes)
{
    struct transport_header header = {.kind = KIND_CONTROL, .group = group->id, .bytes = bytes};
    return proto_transmit(group->proto, peer, &header, message, bytes);
}

int proto_tell(struct proto_group *group, int32_t peer, const void *message, size_t bytes)
{
    int32_t global = group->global_ranks[peer];
    int status = proto_connect(group->proto, global);
    return status == TUTTI_OK ? send_control(group, global, message, bytes) : status;
}

int proto_notify(struct proto_group *group, int32_t peer, const void *message, size_t bytes)
{
    struct proto *proto = group->proto;
    int32_t global = group->global_ranks[peer];
    if (bytes > KIND_CONTROL_MAX)
        return proto->host->error(TUTTI_ERR_INVALID_ARGUMENT, "a control message of %zu bytes exceeds the limit of %d",
                                  bytes, KIND_CONTROL_MAX);
    if (!proto_ops(proto, global)->is_up(proto->peer[global].transport, global)) return TUTTI_OK;
    proto_expect_answer(proto, global);
    return send_control(group, global, message, bytes);
}
