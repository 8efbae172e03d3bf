/* The message protocol: how a send meets its receive, over a fabric's links.
 *
 *   eager       up to WIRE_EAGER bytes travel with the header; a message without a receive is kept in a copy.  What a
 *               peer may have here without a receive is bounded (PROTO_WINDOW): beyond it, it asks first.
 *   asking      the sender names its message (RTS), the receiver opens its memory and says so (CTS), the sender writes
 *               there, and the write itself tells the receiver that it is complete.
 *   expected    the core marks messages whose receive is certain: then a large receive opens its memory and says so
 *               (CTS) at once, and the sender, as a rule, finds that there when it begins.
 *
 * Ranks that share memory meet in the same way, over rings instead of links (link.c).  What is large is there offered
 * (OFFER): the receiver reads it out of the sender's memory and says when it has done (FIN).  Where that is not
 * allowed, or not the faster way, it is asked for, and streams through the ring's window (bulk.c).
 *
 * Sizes and fingerprints of both sides must be equal.  Otherwise nothing is written, the receive fails and the sender
 * is told (NACK), or the other way round.
 */
#ifndef PROTO_H
#define PROTO_H

#include "tcp/base/wire.h"
#include "tcp/net/fabric.h"
#include "tcp/shm/coll/coll.h"
#include "tcp/shm/shm.h"
#include <tutti/match.h>

enum {
    PROTO_WINDOW = 2 << 20,       /* cost of eager messages that a peer holds for us without a receive */
    PROTO_EAGER_COST = 256,       /* of an eager message, besides its bytes */
    PROTO_REDUCE_MOST = 16 << 10, /* see recv_reduce_most */
    PROTO_PATIENCE_MS = 20,       /* then an expected send that was not asked for tells of itself */
    /* Memory is taken back by ending the link, so long after it was asked for, if the peer has said nothing at all for
     * PROTO_SILENT_MS; or after PROTO_PATIENT_MS. */
    PROTO_REVOKE_MS = 300,
    PROTO_SILENT_MS = 600,
    PROTO_PATIENT_MS = 1500
};

/* A group's share. */
struct proto_group {
    struct proto *proto;
    uint64_t id;
    int32_t rank, world_size;
    const int32_t *global_ranks;
    void *core;
    struct coll_segment coll;
    bool plans_only; /* as tutti_group_info */
    int coll_index;  /* index of its collective segment, or COLL_ABSENT */
    bool closing;    /* its requests are not completed any more */
    LIST_ENTRY(proto_group) link;
};

enum proto_state {
    PROTO_SEND_WAITING, /* for a receiver's memory */
    PROTO_SEND_WRITING,
    PROTO_RECV_POSTED,
    PROTO_RECV_OPEN,    /* memory open to the peer; still among the posted if it was opened unasked */
    PROTO_RECV_PULLING, /* reads what a local peer has offered */
    PROTO_RECV_PEEKING  /* waits until a message is there, and leaves it there */
};

/* A request under way.  The slot it lies in and a count make its name on the wire. */
struct proto_op {
    tutti_match_receive match; /* first: see op_of */
    tutti_request *request;
    struct proto_group *group;
    struct fabric_memory memory;
    void *stage; /* what a peer writes before it is reduced */
    struct fabric_write write;
    uint64_t id;
    int64_t since_ns;
    int32_t peer; /* global, or TUTTI_ANY_SOURCE */
    uint32_t generation;
    uint8_t state;
    bool cancelled;              /* the core wants it back */
    bool cut;                    /* a write that ends before all is written */
    bool is_due;                 /* on one of the lists below */
    bool offered;                /* a send: the peer may be reading its memory */
    struct proto_due *bulk_list; /* the list it is on, or NULL */
    uint64_t offer;              /* RECV_PULLING, RECV_OPEN: the peer's name for it; and where it is there */
    uint64_t from;
    uint64_t took_ns;           /* its reading so far */
    size_t at;                  /* bytes that were pulled, or have gone or come through the window */
    TAILQ_ENTRY(proto_op) bulk; /* of that list */
    TAILQ_ENTRY(proto_op) due;  /* of proto.patient or, once cancelled, of proto.revoked */
    struct proto_op *next_free;
};
TAILQ_HEAD(proto_due, proto_op);

/* Something that came before its counterpart: an eager message or an RTS before the receive, a CTS before the send. */
struct proto_arrival {
    tutti_match_message match; /* first: see arrival_of */
    struct wire_header header;
    uint8_t payload[];
};

/* How a message sets out: with its data, offered to be read, or asked for. */
enum proto_way { PROTO_EAGER, PROTO_OFFER, PROTO_ASK };

struct proto_peer {
    uint64_t sent, sent_gone; /* cost of eager messages to it, and of those that found their receive there */
    uint64_t came;            /* cost of its eager messages, */
    uint64_t done, done_told; /* of those that found theirs here, and what it knows of that */
    int64_t owes_ns;          /* since when it has said nothing to notes and questions; 0: it has */
    bool left, told;          /* it said goodbye; we did */
    bool written;             /* the network was given a write to its memory */
};

/* A receive whose caller looks for its message right now: it is neither posted nor has it an operation. */
struct proto_awaited {
    tutti_request *request; /* NULL: there is none, or its message has come */
    const struct proto_group *group;
    int32_t peer;
    int status;     /* what its message made of it */
    bool announced; /* it has been asked for or offered: what comes unasked after that is another one */
};

struct proto {
    const tutti_host *host;
    struct fabric *fabric;                   /* NULL where all ranks share memory */
    struct shm *shm;                         /* NULL where none does */
    struct proto_due pulls, pushes, streams; /* what is read, and what is written or read through windows */
    void *block;                             /* of PROTO_REDUCE_MOST, for what is read and then added in place */
    unsigned turns;                          /* in which collectives moved */
    struct coll_list colls;                  /* with operations under way */
    int32_t rank, world_size;
    struct proto_awaited awaited;
    tutti_matcher messages;   /* posted receives and probes; eager messages, RTS and offers without a receive */
    tutti_matcher grants;     /* sends that wait for a CTS, in place of receives; CTS without a send */
    struct proto_due patient; /* expected sends, oldest first */
    struct proto_due revoked; /* cancelled, oldest first */
    struct proto_op **slot;
    size_t n_slots;
    struct proto_op *free_ops;
    struct proto_peer *peer;
    void *core; /* of the family's first group */
    LIST_HEAD(, proto_group) groups;
    struct proto_past *past; /* groups that are closed here: what still comes for them is nobody's */
    bool closing;
    int moved;
};

/* proto.c */
int proto_open(struct proto *proto, const struct fabric_config *config, void *core);
void proto_close(struct proto *proto);
/* Says goodbye as proto_close does, and gives nothing back. */
void proto_leave(struct proto *proto);
/* See tutti_backend.drain. */
int32_t proto_drain(struct proto *proto);
int proto_add_group(struct proto *proto, struct proto_group *group);
void proto_remove_group(struct proto_group *group);
int proto_progress(struct proto *proto);
int proto_tell(struct proto_group *group, int32_t peer, const void *message, size_t bytes);
/* Reserves a collective segment for a group that is about to be made.  Returns its index, or COLL_ABSENT. */
int proto_reserve_coll(struct proto *proto, const tutti_group_info *info);
int proto_notify(struct proto_group *group, int32_t peer, const void *message, size_t bytes);

/* proto_post.c: what the core asks for */
int proto_send(struct proto_group *group, tutti_request *request);
int proto_recv(struct proto_group *group, tutti_request *request);
int proto_cancel(struct proto_group *group, tutti_request *request);

/* proto_arrive.c: what the fabric and the rings tell */
extern const struct fabric_events proto_events;
extern const struct shm_events proto_local_events;

/* link.c: a peer's link, whether it is the fabric's or a ring.  As the functions of fabric.h; unsend takes the message
 * of this kind and id back. */
bool link_is_local(const struct proto *proto, int32_t rank);
int link_connect(struct proto *proto, int32_t rank);
bool link_is_up(const struct proto *proto, int32_t rank);
const char *link_lost(const struct proto *proto, int32_t rank);
int link_send(struct proto *proto, int32_t rank, const struct wire_header *header, const void *payload, size_t bytes);
bool link_unsend(struct proto *proto, int32_t rank, enum wire_kind kind, uint64_t id);
void link_write(struct proto *proto, struct proto_op *op);
bool link_unwrite(struct proto *proto, struct proto_op *op);
bool link_cut(struct proto *proto, struct proto_op *op);
int link_expose(struct proto *proto, struct proto_op *op);
void link_drop(struct proto *proto, int32_t rank, const char *why, bool notify);
bool link_is_flushed(const struct proto *proto, int32_t rank);
int link_progress(struct proto *proto);
int link_describe(const struct proto *proto, char *text, size_t capacity);
int link_hosts(struct proto *proto, int32_t *host);
int link_arm(struct proto *proto, int *descriptors);

/* bulk.c: large messages between ranks that share memory */
enum {
    BULK_LEAST = 16 << 10, /* measured: up to here to read is not faster than a copy into the ring and one out of it */
    BULK_TURN = 4 << 20    /* bytes read in one turn: less than half a millisecond */
};
/* Up to how many bytes a message to a rank that shares memory may be sent unasked; and mostly is. */
size_t bulk_unasked(const struct shm *shm);
size_t bulk_eager(const struct shm *shm);
/* Which way a message to a rank that shares memory goes: unasked, if that is allowed; offered to be read; or asked for
 * and then pushed. */
enum proto_way bulk_way(struct proto *proto, const tutti_request *request, int32_t peer, bool unasked);
/* Sends unasked what is more than BULK_LEAST. */
int bulk_copy(struct proto *proto, const tutti_request *request, int32_t peer, struct wire_header *header);
int bulk_offer(struct proto *proto, struct proto_op *op);
void bulk_pull(struct proto *proto, struct proto_op *op, const struct wire_header *offer);
/* Reads all of it, which is not more than BULK_TURN.  DONE, or an error. */
int bulk_pull_now(struct proto *proto, tutti_request *request, int32_t peer, const struct wire_header *offer);
void bulk_unoffer(struct proto *proto, const struct wire_header *header);
void bulk_fin(struct proto *proto, const struct wire_header *header);
void bulk_push(struct proto *proto, struct proto_op *op);
void bulk_forget(struct proto *proto, struct proto_op *op);
void bulk_stream(struct proto *proto, const struct wire_header *header);
/* Takes what has come through the peer's window. */
void bulk_drain(struct proto *proto, int32_t peer);
/* The link has ended: what is whole without having had its turn is done. */
void bulk_lost(struct proto *proto, int32_t peer);
int bulk_progress(struct proto *proto);

/* Shared by these files. */
bool proto_is_past(const struct proto *proto, uint64_t group);
/* What has come for a group that is closed, or is about to be: whoever waits for an answer gets one. */
void proto_disown(struct proto *proto, const struct wire_header *header);
struct proto_op *proto_op_new(struct proto_group *group, tutti_request *request, int32_t peer, enum proto_state state);
struct proto_op *proto_op_find(const struct proto *proto, uint64_t id);
void proto_op_free(struct proto *proto, struct proto_op *op);
void proto_finish(struct proto *proto, struct proto_op *op, int status);
int proto_say(struct proto *proto, int32_t peer, struct wire_header *header, const void *payload, size_t bytes);
/* The peer is alive if it says anything from now on. */
void proto_expects(struct proto *proto, int32_t peer);
void proto_ask(struct proto *proto, struct proto_op *op);
int proto_open_memory(struct proto *proto, struct proto_op *op, uint64_t ref);
void proto_start_write(struct proto *proto, struct proto_op *op, uint64_t key);
void proto_refuse(struct proto *proto, int32_t peer, enum wire_kind kind, uint64_t ref, const tutti_request *request,
                  bool taken_back);
bool proto_agrees(const tutti_request *request, uint64_t bytes, uint64_t fingerprint);
/* Posts an operation in the matcher of its state. */
void proto_post(struct proto *proto, struct proto_op *op);
/* Takes it out of there; nothing happens if it is not posted. */
void proto_withdraw(struct proto *proto, struct proto_op *op);
int proto_mismatch(struct proto *proto, tutti_request *request, int32_t peer, uint64_t bytes, uint64_t fingerprint);
/* Forgets an RTS or an offer that no receive has met.  false: there is none. */
bool proto_forget_announced(struct proto *proto, int32_t peer, uint64_t id);
void proto_consumed(struct proto *proto, int32_t peer, uint64_t bytes);
int proto_lost(struct proto *proto, int32_t peer);
void proto_finish_recv(struct proto *proto, struct proto_op *op, int32_t peer, int status);
int32_t proto_group_rank(const struct proto_group *group, int32_t global);

#endif
