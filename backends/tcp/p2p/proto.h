/* The message protocol: how a send meets its receive, over transports (base/transport.h).
 *
 *   eager        A message of up to TRANSPORT_PAYLOAD_MAX bytes goes with its header.  Without a posted receive it is
 *                kept in a copy.  PROTO_CREDIT limits the bytes that a peer may have here without a receive.  Beyond
 *                that limit the peer sends an RTS first.
 *   rendezvous   The sender asks (RTS), the receiver exposes its memory and answers (CTS), and the sender writes there.
 *                The write itself notifies the receiver when it is complete.
 *   expected     The core marks messages whose receive is certain.  Over a network a large receive then exposes its
 *                memory and sends its CTS at once.  The CTS has usually arrived when the send begins.
 *   read         If the transport can read a peer's memory, the sender sends the message's address (RTS_READ).  The
 *                receiver reads the message and reports that it has finished (FIN): proto_read.c.  If a write may be
 *                faster, the sender says so, and a receiver that can wait for it may send a CTS instead.
 *
 * Sizes and fingerprints of both sides must agree.  Otherwise nothing is written, the side that finds the difference
 * fails, and the other side gets a NACK.
 */
#ifndef P2P_PROTO_H
#define P2P_PROTO_H

#include <stdlib.h>
#include <tutti/match.h>

#include "tcp/base/spares.h"
#include "tcp/base/transport.h"
#include "tcp/p2p/kinds.h"

enum {
    PROTO_CREDIT = 2 << 20,    /* maximum cost of this rank's eager messages that a peer keeps without a receive */
    PROTO_EAGER_COST = 256,    /* cost of an eager message besides its bytes */
    PROTO_READ_TURN = 4 << 20, /* bytes read in one turn, so that other messages wait less than half a millisecond */
    PROTO_RTS_DELAY_MS = 20,   /* an expected send without a CTS sends its RTS after this time */
    /* If a peer does not return revoked memory, the link is dropped: PROTO_REVOKE_MS after the request if the peer has
     * sent nothing at all for PROTO_SILENT_MS, otherwise PROTO_REVOKE_MAX_MS after it. */
    PROTO_REVOKE_MS = 300,
    PROTO_SILENT_MS = 600,
    PROTO_REVOKE_MAX_MS = 1500,
    PROTO_POLLS = 64,    /* an awaited request looks at this many messages of its peer before it is left pending */
    PROTO_ANY_TURN = 16, /* every such receive from any source is posted, so that all transports make progress */
    PROTO_TRANSPORTS = 2,
    PROTO_CLOSED_MOST = 1 << 16 /* closed groups that are remembered, some 100 bytes each */
};

/* The protocol's part of a group. */
struct proto_group {
    struct proto *proto;
    uint64_t id;
    int32_t rank, world_size;
    const int32_t *global_ranks;
    void *core;                    /* tutti_group_info.core */
    const tutti_path_row *choices; /* the core's rows: see tutti_backend.choose */
    int n_choices;
    bool closing; /* the protocol completes no further request of the group */
    LIST_ENTRY(proto_group) link;
};

enum proto_state {
    PROTO_SEND_WAITING, /* waits for a CTS, or for the FIN of an RTS_READ */
    PROTO_SEND_WRITING,
    PROTO_RECV_EXPOSED, /* the peer may write; still posted if the CTS was sent without an RTS */
    PROTO_RECV_READING  /* this rank reads the peer's memory */
};

/* The protocol's part of a pending request, in tutti_request.priv.  A receive or probe that waits for its message is
 * posted in proto.messages and needs no more than this.  A send that waits for its CTS is posted in proto.grants. */
struct proto_pending {
    tutti_match_receive match; /* must be the first member: see tutti_match_request */
    struct proto_group *group;
    struct proto_op *op; /* NULL: none, so the peer knows nothing of the request */
};
_Static_assert(sizeof(struct proto_pending) <= sizeof(((tutti_request *)NULL)->priv), "it fits a request");

static inline struct proto_pending *proto_pending(const tutti_request *request)
{
    return (struct proto_pending *)(uintptr_t)request->priv;
}

/* The peer's part in a pending request: what it knows by an id, or does with the request's memory.  Its slot and a
 * generation make its id on the wire. */
struct proto_op {
    tutti_request *request;
    uint64_t id;  /* its slot plus 1; the upper half counts the slot's uses */
    int32_t peer; /* global rank */
    uint8_t state;
    bool cancelled;   /* the core has cancelled the request */
    bool cut;         /* its write ends early */
    bool is_timed;    /* on `delayed` or, once cancelled, on `revoked` */
    bool is_readable; /* a send whose memory the peer may be reading */
    bool is_offered;  /* while it is readable, the peer may ask for a write instead */

    /* Not set in a new operation, but for `memory.transport` and `write.queued`, which say whether the rest is in use.
     * Most operations end without any of these. */
    struct transport_memory memory;
    struct transport_write write;
    int64_t start_ns; /* is_timed */
    uint64_t peer_id; /* RECV_READING, RECV_EXPOSED: the peer's id of the message */
    uint64_t address; /* RECV_READING: the message's address in the peer */
    size_t bytes_read;
    TAILQ_ENTRY(proto_op) reading, timed;
    struct proto_op *next_free;
};
TAILQ_HEAD(proto_ops, proto_op);

/* A message that arrived early: an eager message or an RTS before its receive, or a CTS before its send. */
struct proto_arrival {
    tutti_match_message match; /* must be the first member */
    struct transport_header header;
    uint8_t payload[];
};

struct proto_peer {
    struct transport *transport;
    bool is_connected;                   /* transport_ops.connect has succeeded and the link has not been lost since */
    bool left, said_bye;                 /* the peer has sent its BYE; this rank has sent its own */
    bool was_written;                    /* a write to the peer's memory was started */
    uint64_t eager_sent, eager_credited; /* cost of eager messages to the peer; of those known to be matched */
    uint64_t eager_received;             /* cost of the peer's eager messages */
    uint64_t eager_matched, credit_sent; /* cost of the peer's eager messages matched here; the last value sent to it */
    int64_t silent_ns;                   /* start of the peer's silence; 0: no answer is due */
};

/* A receive whose caller polls for its message.  It is not posted and has no operation. */
struct proto_polled {
    tutti_request *request; /* NULL if there is none or its message has arrived */
    const struct proto_group *group;
    int32_t peer;
    int status;
    bool has_rts; /* its RTS has arrived, so a later eager message is not the one polled for */
};

struct proto {
    const tutti_host *host;
    struct transport *transport[PROTO_TRANSPORTS]; /* in order of preference */
    int n_transports;
    int32_t rank, world_size;
    struct proto_peer *peer;
    struct proto_polled polled;
    unsigned polls_for_any;   /* receives from any source that could poll: see PROTO_ANY_TURN */
    tutti_matcher messages;   /* eager messages and RTS, and the receives and probes that wait for one */
    tutti_matcher grants;     /* CTS messages, and sends that wait for one in place of receives */
    struct spares arrivals;   /* memory of messages that arrived early */
    struct proto_ops reading; /* receives that read a peer's memory, oldest first */
    struct proto_ops delayed; /* expected sends without an RTS, oldest first */
    struct proto_ops revoked; /* cancelled operations whose memory a peer may use, oldest first */
    struct proto_op **slot;
    size_t n_slots;
    struct proto_op *free_ops;
    void *core; /* `core` of the tree's first group */
    LIST_HEAD(, proto_group) groups;
    struct proto_closed *closed; /* the groups closed here last; their late messages are rejected */
    bool closing;
    int moved;
};

/* ---- proto.c ------------------------------------------------------------------------------------------------- */

struct proto_config {
    int32_t rank, world_size;
    const tutti_host *host;
    void *core; /* tutti_group_info.core of the tree's first group */
};

/* The caller must call proto_close, also after an error. */
int proto_open(struct proto *proto, const struct proto_config *config);
/* Uses the transport for the ranks that no earlier transport reaches.  It must have been opened with proto_events and
 * this proto, which closes it.  Returns true if the transports reach all ranks. */
bool proto_add_transport(struct proto *proto, struct transport *transport);
void proto_close(struct proto *proto);
/* Says goodbye to all peers, as proto_close does, but frees nothing. */
void proto_leave(struct proto *proto);
/* Implements tutti_backend.drain. */
int32_t proto_drain(struct proto *proto);
int proto_progress(struct proto *proto);
int proto_arm(struct proto *proto, int *descriptors);
int proto_describe(const struct proto *proto, char *text, size_t capacity);

/* ---- proto_group.c ------------------------------------------------------------------------------------------- */

void proto_add_group(struct proto *proto, struct proto_group *group);
void proto_remove_group(struct proto_group *group);
/* Implement tutti_backend.tell and notify. */
int proto_tell(struct proto_group *group, int32_t peer, const void *message, size_t bytes);
int proto_notify(struct proto_group *group, int32_t peer, const void *message, size_t bytes);

/* Returns the group rank of a global rank, or -1. */
int32_t proto_group_rank(const struct proto_group *group, int32_t global);
/* Returns the group rank of the peer whose message a receive gets. */
static inline int32_t proto_source(const struct proto_group *group, const tutti_request *request, int32_t peer)
{
    return request->peer != TUTTI_ANY_SOURCE ? request->peer : proto_group_rank(group, peer);
}
bool proto_is_closed(const struct proto *proto, uint64_t group);
/* Rejects a message that nothing will receive.  A peer that waits for an answer gets one. */
void proto_reject(struct proto *proto, const struct transport_header *header);
void proto_free_closed(struct proto *proto);

/* ---- proto_send.c, proto_recv.c, proto_cancel.c: calls of the core ------------------------------------------- */

int proto_send(struct proto_group *group, tutti_request *request);
int proto_recv(struct proto_group *group, tutti_request *request);
int proto_cancel(struct proto_group *group, tutti_request *request);

void proto_send_rts(struct proto *proto, struct proto_op *op);
/* Starts the write that a CTS grants. */
void proto_start_write(struct proto *proto, struct proto_op *op, const struct transport_header *cts);
/* Answers an RTS whose receive is not posted, or no longer.  now: reads a message that is not too large at once.
 * Returns PENDING or DONE, or an error after which the receive has no operation. */
int proto_answer_rts(struct proto_group *group, tutti_request *request, const struct transport_header *rts, bool now);

/* ---- proto_arrive.c: events of transports -------------------------------------------------------------------- */

extern const struct transport_events proto_events;
/* Forgets an RTS that has no receive.  Returns false if there is none with this id. */
bool proto_forget_rts(struct proto *proto, int32_t peer, uint64_t id);
/* Frees a message that arrived early, once it is in no matcher. */
void proto_free_arrival(struct proto *proto, struct proto_arrival *arrival);

/* ---- proto_read.c: single-copy reads ------------------------------------------------------------------------- */

void proto_send_rts_read(struct proto *proto, struct proto_op *op, bool offers);
/* Starts to read the message of a receive.  Returns PENDING or NO_MEMORY. */
int proto_start_read(struct proto_group *group, tutti_request *request, const struct transport_header *rts);
/* Reads the whole message, which has at most PROTO_READ_TURN bytes.  Returns DONE, or an error. */
int proto_read_now(struct proto *proto, tutti_request *request, int32_t peer, const struct transport_header *rts);
void proto_handle_cancel_read(struct proto *proto, const struct transport_header *header);
void proto_handle_fin(struct proto *proto, const struct transport_header *header);
/* Returns how many reads have made progress. */
int proto_continue_reads(struct proto *proto);

/* ---- proto_op.c: operations ---------------------------------------------------------------------------------- */

/* Returns NULL with an error text if out of memory. */
struct proto_op *proto_op_new(struct proto_group *group, tutti_request *request, int32_t peer, enum proto_state state);
struct proto_op *proto_op_find(const struct proto *proto, uint64_t id);
/* Returns the receive that has answered this RTS with a CTS, or NULL. */
struct proto_op *proto_find_exposed(const struct proto *proto, int32_t peer, uint64_t rts);
/* Frees an operation and withdraws its request everywhere.  May drop the link, which ends the peer's other
 * operations. */
void proto_op_free(struct proto *proto, struct proto_op *op);
void proto_free_ops(struct proto *proto);
static inline struct proto_group *proto_group_of(const struct proto_op *op)
{
    return proto_pending(op->request)->group;
}

/* ---- proto_talk.c: messages to peers, agreement, errors ------------------------------------------------------ */

static inline const struct transport_ops *proto_ops(const struct proto *proto, int32_t peer)
{
    return proto->peer[peer].transport->ops;
}

int proto_connect(struct proto *proto, int32_t peer);
void proto_drop(struct proto *proto, int32_t peer, const char *why);
/* Sends a message, with this rank's source and credit. */
int proto_transmit(struct proto *proto, int32_t peer, struct transport_header *header, const void *payload,
                   size_t bytes);
/* Withdraws a message that has not left.  Returns false if it has. */
bool proto_unsend(struct proto *proto, const struct proto_op *op, enum kind kind);
/* Starts to measure the peer's silence, which any message from the peer ends. */
void proto_expect_answer(struct proto *proto, int32_t peer);
/* Sends a NACK with the size and fingerprint of `request`, or the flag "withdrawn" if it is NULL. */
void proto_send_nack(struct proto *proto, int32_t peer, enum kind kind, uint64_t ref, const tutti_request *request);
/* Returns a header that describes the request. */
struct transport_header proto_header(const struct proto_op *op, enum kind kind);
/* Sends a message that carries only the credit. */
void proto_send_credit(struct proto *proto, int32_t peer);
/* Set the error text and return the error. */
int proto_fail_mismatch(struct proto *proto, tutti_request *request, const struct transport_header *header);
int proto_fail_lost(struct proto *proto, int32_t peer);

/* ---- on the path of every small message, therefore inline ---------------------------------------------------- */

/* Posts a request in a matcher.  Reserves memory for the next one last, so that callers save no registers for that. */
static inline void proto_post(struct proto_group *group, tutti_matcher *matcher, tutti_request *request,
                              tutti_match_key key)
{
    struct proto_pending *pending = proto_pending(request);
    pending->match.key = key;
    pending->group = group;
    tutti_match_post(matcher, &pending->match);
    tutti_match_reserve(matcher, malloc, free);
}

/* Withdraws a request everywhere and frees its operation, if it has one. */
static inline void proto_withdraw(struct proto *proto, tutti_request *request)
{
    struct proto_pending *pending = proto_pending(request);
    if (pending->op != NULL)
        proto_op_free(proto, pending->op);
    else
        tutti_match_withdraw(&proto->messages, &pending->match);
}

/* Completes a withdrawn request. */
static inline void proto_complete(struct proto *proto, tutti_request *request, int status)
{
    proto->moved++;
    if (!proto_pending(request)->group->closing) proto->host->complete(request, status);
}

static inline void proto_finish(struct proto *proto, tutti_request *request, int status)
{
    proto_withdraw(proto, request);
    proto_complete(proto, request, status);
}

/* Finishes a receive, and sets its source. */
static inline void proto_finish_recv(struct proto *proto, tutti_request *request, int32_t peer, int status)
{
    request->source = proto_source(proto_pending(request)->group, request, peer);
    proto_finish(proto, request, status);
}

/* True if a message agrees with its request in size and fingerprint. */
static inline bool proto_agrees(const tutti_request *request, const struct transport_header *header)
{
    if (request->flags & TUTTI_REQUEST_OPEN) return tutti_request_fits(request, header->bytes, header->fingerprint);
    if (request->bytes != header->bytes) return false;
    if (request->fingerprint == header->fingerprint) return true; /* nearly always */
    return request->fingerprint == 0 || header->fingerprint == 0;
}

/* Counts an eager message as matched.  Sends a credit message if much credit is due. */
static inline void proto_return_credit(struct proto *proto, int32_t peer, uint64_t bytes)
{
    struct proto_peer *state = &proto->peer[peer];
    state->eager_matched += bytes + PROTO_EAGER_COST;
    if (state->eager_matched - state->credit_sent >= PROTO_CREDIT / 4) proto_send_credit(proto, peer);
}

/* Like proto_agrees, and also settles an open receive with a message that agrees. */
static inline bool proto_settle(tutti_request *request, const struct transport_header *header)
{
    if (!proto_agrees(request, header)) return false;
    tutti_request_settle(request, header->tag, header->bytes, header->fingerprint);
    return true;
}

/* Copies an eager message to its receive.  Returns MISMATCH if size or fingerprint differ. */
static inline int proto_take_eager(struct proto *proto, tutti_request *request, const struct transport_header *header,
                                   const void *payload)
{
    proto_return_credit(proto, (int32_t)header->source, header->bytes);
    if (!proto_settle(request, header)) return proto_fail_mismatch(proto, request, header);
    tutti_request_take(proto->host, request, 0, payload, header->bytes);
    return TUTTI_OK;
}

#endif
