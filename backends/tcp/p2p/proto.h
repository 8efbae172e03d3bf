/* The message protocol: how a send meets its receive, over transports (base/transport.h).
 *
 *   eager        a message of up to TRANSPORT_PAYLOAD_MAX bytes goes with its header.  Without a posted receive it is
 *                kept in a copy.  The bytes that a peer may have here without a receive are limited (PROTO_CREDIT);
 *                beyond that it sends an RTS first.
 *   rendezvous   the sender asks (RTS), the receiver exposes its memory and answers (CTS), and the sender writes there.
 *                The write itself tells the receiver that it is complete.
 *   expected     the core marks messages whose receive is certain.  Over a network a large receive then exposes its
 *                memory and sends its CTS at once, and the sender usually finds that there when it begins.
 *   read         on transports that can read a peer's memory the sender says where its message is (RTS_READ), and the
 *                receiver reads it and reports that it has (FIN): proto_read.c.
 *
 * Sizes and fingerprints of both sides must agree.  Otherwise nothing is written, the side that finds it fails, and the
 * other one gets a NACK.
 */
#ifndef P2P_PROTO_H
#define P2P_PROTO_H

#include <tutti/match.h>

#include "tcp/base/transport.h"
#include "tcp/p2p/kinds.h"

enum {
    PROTO_CREDIT = 2 << 20,    /* cost of eager messages that a peer keeps for this rank without a receive */
    PROTO_EAGER_COST = 256,    /* of an eager message, besides its bytes */
    PROTO_READ_TURN = 4 << 20, /* bytes read in one turn: less than half a millisecond */
    PROTO_RTS_DELAY_MS = 20,   /* an expected send without a CTS sends its RTS after this time */
    /* Revoked memory is taken back by dropping the link, this long after the peer was asked, if the peer has said
     * nothing at all for PROTO_SILENT_MS; or after PROTO_REVOKE_MAX_MS. */
    PROTO_REVOKE_MS = 300,
    PROTO_SILENT_MS = 600,
    PROTO_REVOKE_MAX_MS = 1500,
    PROTO_TRANSPORTS = 2
};

/* The protocol's part of a group. */
struct proto_group {
    struct proto *proto;
    uint64_t id;
    int32_t rank, world_size;
    const int32_t *global_ranks;
    void *core;   /* tutti_group_info.core */
    bool closing; /* the protocol completes none of its requests any more */
    LIST_ENTRY(proto_group) link;
};

enum proto_state {
    PROTO_SEND_WAITING, /* for a CTS, or for the FIN of an RTS_READ */
    PROTO_SEND_WRITING,
    PROTO_RECV_POSTED,
    PROTO_RECV_EXPOSED, /* the peer may write; still posted if its CTS answers no RTS */
    PROTO_RECV_READING, /* this rank reads the peer's memory */
    PROTO_RECV_PROBING  /* waits until there is a message, and leaves it */
};

/* A request under way.  Its slot and a generation make its id on the wire. */
struct proto_op {
    tutti_match_receive match; /* first */
    tutti_request *request;
    struct proto_group *group;
    struct transport_memory memory;
    struct transport_write write;
    uint64_t id;
    int64_t start_ns;
    int32_t peer; /* global, or TUTTI_ANY_SOURCE */
    uint32_t generation;
    uint8_t state;
    bool cancelled;   /* the core wants it back */
    bool cut;         /* its write ends before all is written */
    bool is_timed;    /* on `delayed` or, once cancelled, on `revoked` */
    bool is_readable; /* a send: the peer may be reading its memory */
    uint64_t peer_id; /* RECV_READING, RECV_EXPOSED: the peer's id of the message, */
    uint64_t address; /* and its address there */
    uint64_t read_ns; /* time spent reading so far */
    size_t bytes_read;
    TAILQ_ENTRY(proto_op) reading, timed;
    struct proto_op *next_free;
};
TAILQ_HEAD(proto_ops, proto_op);

/* A message that came before its counterpart: an eager message or an RTS before the receive, a CTS before the send. */
struct proto_arrival {
    tutti_match_message match; /* first */
    struct transport_header header;
    uint8_t payload[];
};

struct proto_peer {
    struct transport *transport;
    bool is_connected;                   /* transport_ops.connect has succeeded, and the link was not lost since */
    bool left, said_bye;                 /* it said goodbye; this rank did */
    bool was_written;                    /* the transport got a write to its memory */
    uint64_t eager_sent, eager_credited; /* cost of eager messages to it, and of those that found their receive there */
    uint64_t eager_received;             /* cost of its eager messages, */
    uint64_t eager_matched, credit_sent; /* of those that found their receive here, and how much of that it knows */
    int64_t silent_ns;                   /* since when it has not answered; 0: no answer is due */
};

/* A receive whose caller polls for its message.  It is neither posted nor has it an operation. */
struct proto_polled {
    tutti_request *request; /* NULL: there is none, or its message has come */
    const struct proto_group *group;
    int32_t peer;
    int status;
    bool has_rts; /* its RTS has come, so an eager message after that is another one */
};

struct proto {
    const tutti_host *host;
    struct transport *transport[PROTO_TRANSPORTS]; /* in order of preference */
    int n_transports;
    int32_t rank, world_size;
    struct proto_peer *peer;
    struct proto_polled polled;
    tutti_matcher messages;   /* posted receives and probes; eager messages and RTS without a receive */
    tutti_matcher grants;     /* sends without a CTS, in place of receives; CTS without a send */
    struct proto_ops reading; /* receives that read a peer's memory, oldest first */
    struct proto_ops delayed; /* expected sends without an RTS, oldest first */
    struct proto_ops revoked; /* cancelled, oldest first */
    struct proto_op **slot;
    size_t n_slots;
    struct proto_op *free_ops;
    void *core; /* of the tree's first group */
    LIST_HEAD(, proto_group) groups;
    struct proto_closed *closed; /* groups closed here; their late messages are rejected */
    bool closing;
    int moved;
};

/* ---- proto.c ------------------------------------------------------------------------------------------------- */

struct proto_config {
    int32_t rank, world_size;
    const tutti_host *host;
    void *core; /* tutti_group_info.core of the tree's first group */
};

/* Also after an error proto_close must be called. */
int proto_open(struct proto *proto, const struct proto_config *config);
/* Uses the transport for the ranks that it reaches and earlier ones do not.  It must have been opened with proto_events
 * and this proto, which closes it.  Returns true if all ranks are reached now. */
bool proto_add_transport(struct proto *proto, struct transport *transport);
void proto_close(struct proto *proto);
/* Says goodbye as proto_close does, and frees nothing. */
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
bool proto_is_closed(const struct proto *proto, uint64_t group);
/* Rejects a message for a group that is closed: a peer that waits for an answer gets one. */
void proto_reject(struct proto *proto, const struct transport_header *header);
void proto_free_closed(struct proto *proto);

/* ---- proto_send.c, proto_recv.c, proto_cancel.c: what the core calls -------------------------------------  */

int proto_send(struct proto_group *group, tutti_request *request);
int proto_recv(struct proto_group *group, tutti_request *request);
int proto_cancel(struct proto_group *group, tutti_request *request);

void proto_send_rts(struct proto *proto, struct proto_op *op);
void proto_start_write(struct proto *proto, struct proto_op *op, uint64_t key);
/* Exposes a receive's memory and answers the RTS ref, or none (0). */
int proto_send_cts(struct proto *proto, struct proto_op *op, uint64_t ref);
/* Counts an eager message that has found its receive, and returns credit if much is due. */
void proto_return_credit(struct proto *proto, int32_t peer, uint64_t bytes);

/* ---- proto_arrive.c: what transports report -----------------------------------------------------------------  */

extern const struct transport_events proto_events;
/* Forgets an RTS that has no receive.  Returns false if there is none with this id. */
bool proto_forget_rts(struct proto *proto, int32_t peer, uint64_t id);

/* ---- proto_read.c: single-copy reads
 * ------------------------------------------------------------------------------------------- */

void proto_send_rts_read(struct proto *proto, struct proto_op *op);
void proto_start_read(struct proto *proto, struct proto_op *op, const struct transport_header *rts);
/* Reads the whole message, which is not above PROTO_READ_TURN.  Returns DONE, or an error. */
int proto_read_now(struct proto *proto, tutti_request *request, int32_t peer, const struct transport_header *rts);
void proto_handle_cancel_read(struct proto *proto, const struct transport_header *header);
void proto_handle_fin(struct proto *proto, const struct transport_header *header);
/* Returns how many messages moved. */
int proto_continue_reads(struct proto *proto);

/* ---- proto_op.c: operations -----------------------------------------------------------------------------------------
 */

struct proto_op *proto_op_new(struct proto_group *group, tutti_request *request, int32_t peer, enum proto_state state);
struct proto_op *proto_op_find(const struct proto *proto, uint64_t id);
/* Frees an operation and withdraws it everywhere.  May drop the link, and so end others with this peer. */
void proto_op_free(struct proto *proto, struct proto_op *op);
void proto_free_ops(struct proto *proto);
/* Posts an operation in the matcher of its state. */
void proto_post(struct proto *proto, struct proto_op *op);
void proto_withdraw(struct proto *proto, struct proto_op *op);
/* End an operation; the second one sets a receive's source. */
void proto_finish(struct proto *proto, struct proto_op *op, int status);
void proto_finish_recv(struct proto *proto, struct proto_op *op, int32_t peer, int status);

/* ---- proto_talk.c: messages to peers, agreement, errors
 * -------------------------------------------------------------- */

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
/* From now on, anything that the peer sends shows that it is alive. */
void proto_expect_answer(struct proto *proto, int32_t peer);
/* Sends a NACK: with request's bytes and fingerprint, or, if it is NULL, saying that it was withdrawn. */
void proto_send_nack(struct proto *proto, int32_t peer, enum kind kind, uint64_t ref, const tutti_request *request);
/* Returns a header that describes the request. */
struct transport_header proto_header(const struct proto_op *op, enum kind kind);
/* True if a message agrees with its request in size and fingerprint. */
bool proto_agrees(const tutti_request *request, const struct transport_header *header);
/* Return the error, with its text set. */
int proto_fail_mismatch(struct proto *proto, tutti_request *request, const struct transport_header *header);
int proto_fail_lost(struct proto *proto, int32_t peer);

#endif
