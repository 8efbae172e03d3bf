/* A transport carries messages, and writes into exposed memory, between the ranks of a group tree.  Shared memory
 * (shm/) and libfabric (net/) each implement this table; the message protocol (p2p/) knows nothing else of them.
 *
 * Ranks here are the tree's global ranks.  All calls are made under the tree's lock.  Events come from within progress
 * and poll.  `lost` may come from any call that takes a rank.
 */
#ifndef TCP_TRANSPORT_H
#define TCP_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <tutti/backend.h>

enum {
    TRANSPORT_VERSION = 4,         /* version of all messages between ranks; both sides must use the same */
    TRANSPORT_PAYLOAD_MAX = 65536, /* bytes; a change needs a new TRANSPORT_VERSION */
    TRANSPORT_REDUCE_MAX = 16384,  /* the largest message that is reduced while it is received */
    TRANSPORT_PARTS_MAX = 4,       /* maximum number of parts of a write */
    TRANSPORT_KINDS = 16           /* kinds below are the protocol's; the others are a transport's own */
};

/* A message's header.  The protocol defines its meaning.  A transport may pack fields that are zero, and compares kind
 * and id in unsend. */
struct transport_header {
    uint8_t kind;
    uint32_t source; /* global rank of the sender of this message */
    uint64_t group;
    uint64_t tag;
    uint64_t bytes;
    uint64_t fingerprint;
    uint64_t id;       /* the sender's id of its message or exposed memory */
    uint64_t ref;      /* the `id` of an earlier message of the receiver */
    uint64_t credit;   /* total cost of the receiver's eager messages that have been matched here */
    uint8_t flags;     /* kept apart from kind: loading both as one word would wait for two stores */
    bool after_writes; /* not sent: the message must also arrive after all writes to the peer */
};

/* A write under way.  It belongs to the transport until write_done, unwrite or drop. */
struct transport_write {
    const void *data;
    size_t bytes;
    uint64_t key; /* identifies the peer's memory; the peer's `written` event carries it */
    void *owner;
    uint8_t parts;             /* the peer's transport_memory.parts */
    const tutti_path_row *row; /* the core's row for the message, or NULL */
    /* Private to the transport. */
    TAILQ_ENTRY(transport_write) entry;
    int32_t rank;
    uint8_t rails, tails, surplus;
    bool queued;             /* on a list of the transport */
    size_t posted, landed;   /* bytes posted so far; bytes that have left this process */
    struct rdm_offer *offer; /* the receiver reads the data: see rdm_offer.c */
};
TAILQ_HEAD(transport_writes, transport_write);

/* A request's memory while a peer may write to it.  It must not move. */
struct transport_memory {
    tutti_request *request;
    uint64_t key;  /* unique among this rank's exposed memory */
    void *staging; /* set if the request reduces: the data lies here, and the user reduces it after `written` */
    uint8_t parts; /* the number of `written` events that complete the write; expose may change it from 1 */
    /* Private to the transport. */
    struct transport *transport; /* NULL: not exposed */
    TAILQ_ENTRY(transport_memory) entry;
    int32_t rank;
    void *handle;
    size_t received;
};
TAILQ_HEAD(transport_memories, transport_memory);

struct transport;

struct transport_events {
    /* The header is a private copy that nobody has validated yet.  The payload is valid during the call, and a faulty
     * peer may change it meanwhile.  Returns false if the message is malformed. */
    bool (*message)(void *user, const struct transport *from, const struct transport_header *header,
                    const void *payload, size_t bytes);
    void (*written)(void *user, uint64_t key); /* a part of a peer's write to key is complete */
    /* The memory of the write may be reused.  Its `bytes` are fewer than before if it was ended early. */
    void (*write_done)(void *user, struct transport_write *write);
    void (*lost)(void *user, int32_t rank, const char *why); /* the link has ended and its writes are dropped */
};

/* Configures the transports of a group tree. */
struct transport_config {
    int32_t rank;
    int32_t world_size;
    int32_t local_world_size; /* -1 if unknown */
    uint64_t tree_id;
    int64_t timeout_ms, open_timeout_ms; /* limits of operations and of opening */
    const tutti_host *host;
    tutti_counters *counters; /* or NULL */
    tutti_store *store;
    const struct transport_events *events;
    void *user;
};

/* Returns the configuration for a group tree's first group. */
static inline struct transport_config transport_configure(const tutti_group_info *info, const tutti_host *host,
                                                          const struct transport_events *events, void *user)
{
    bool has_own = TUTTI_HAS(info, open_timeout_ms) && info->open_timeout_ms > 0;
    return (struct transport_config){.rank = info->rank,
                                     .world_size = info->world_size,
                                     .local_world_size = info->local_world_size,
                                     .tree_id = info->id,
                                     .timeout_ms = info->timeout_ms,
                                     .open_timeout_ms = has_own ? info->open_timeout_ms : info->timeout_ms,
                                     .host = host,
                                     .counters = TUTTI_HAS(info, counters) ? info->counters : NULL,
                                     .store = info->store,
                                     .events = events,
                                     .user = user};
}

/* How a message is sent. */
enum transport_path {
    TRANSPORT_EAGER, /* at once, with its data */
    TRANSPORT_READ,  /* the receiver gets the address and reads the message */
    TRANSPORT_WRITE, /* the receiver exposes memory, and the message is written there */
    TRANSPORT_OFFER, /* READ or WRITE, as the receiver chooses */
    TRANSPORT_RMA    /* as READ, but the receiver's network adapter reads the message; never returned by choose */
};

struct transport_ops {
    bool (*reaches)(const struct transport *transport, int32_t rank);
    /* Starts a link to rank unless there is one.  Returns OK, or PEER_LOST with the reason as error text. */
    int (*connect)(struct transport *transport, int32_t rank);
    /* True if messages to rank leave at once. */
    bool (*is_up)(const struct transport *transport, int32_t rank);
    /* Returns why the link was lost, or NULL if it was not. */
    const char *(*lost)(const struct transport *transport, int32_t rank);
    /* True if everything sent to rank has left this process. */
    bool (*is_flushed)(const struct transport *transport, int32_t rank);
    /* Ends the link for good: the peer can no longer read or write this rank's memory.  Calls `lost` if `notify`. */
    void (*drop)(struct transport *transport, int32_t rank, const char *why, bool notify);

    /* Sends a message in order.  Copies header and payload.  Does nothing on a lost link. */
    int (*send)(struct transport *transport, int32_t rank, const struct transport_header *header, const void *payload,
                size_t bytes);
    /* Withdraws the message with this kind and id if it still waits.  Returns false if it has left. */
    bool (*unsend)(struct transport *transport, int32_t rank, uint8_t kind, uint64_t id);

    /* `expose` lets rank write to the data of memory->request under memory->key.  `conceal` ends that.  A write that
     * has begun continues unless the transport `copies_out`. */
    int (*expose)(struct transport *transport, int32_t rank, struct transport_memory *memory);
    void (*conceal)(struct transport_memory *memory);
    /* Writes to the peer's memory. */
    void (*write)(struct transport *transport, int32_t rank, struct transport_write *write);
    /* Withdraws a write.  Returns false if a part of it has been posted, or if it is not under way. */
    bool (*unwrite)(struct transport *transport, int32_t rank, struct transport_write *write);
    /* Ends a write after the pieces that have been posted.  Calls write_done once these have left; the peer never gets
     * `written`.  Returns false if all pieces have been posted. */
    bool (*cut)(struct transport *transport, int32_t rank, struct transport_write *write);

    /* Chooses the path of a message of more than eager_certain bytes.  may_eager: there is credit for it.  blocked: the
     * sender waits for this message alone.  row: the core's row for it, or NULL. */
    enum transport_path (*choose)(struct transport *transport, int32_t rank, const tutti_request *request,
                                  bool may_eager, bool blocked, const tutti_path_row *row);
    /* Tells by which path a message of more than eager_certain bytes comes from rank.  NULL: of no use. */
    void (*hear)(struct transport *transport, int32_t rank, size_t bytes, enum transport_path path);

    /* True if this rank had better read a message that rank offers than let rank write it.  Called once for each. */
    bool (*reads)(struct transport *transport, int32_t rank, const tutti_request *request);
    /* Reads `bytes` of a request's message, from offset `at` on.  The message begins at `from` in the peer's memory.
     * The last part counts only if the peer has not withdrawn the message.  Returns false after a failure, which has
     * dropped the link.  NULL, like `reads`, in a transport without single-copy reads. */
    bool (*read)(struct transport *transport, int32_t rank, tutti_request *request, size_t at, uint64_t from,
                 size_t bytes);
    /* Handles the next message from rank, or from the next of all ranks for TUTTI_ANY_SOURCE.  Waits for it a short
     * time if `waits` is set.  Returns false if none arrived.  Later messages stay where they are, because their
     * receives most likely follow. */
    bool (*poll)(struct transport *transport, int32_t rank, bool waits);

    int (*progress)(struct transport *transport);
    int (*arm)(struct transport *transport, int *descriptors); /* see tutti_backend.arm */
    /* Prints one human-readable line.  Returns its length, or 0. */
    int (*describe)(const struct transport *transport, char *text, size_t capacity);
    void (*close)(struct transport *transport); /* no event follows */
};

struct transport {
    const struct transport_ops *ops;
    size_t eager_certain;   /* with credit, messages up to this size go eagerly without a call of choose */
    size_t eager_max;       /* larger messages never go eagerly */
    bool early_cts;         /* a round trip is so slow that an expected receive exposes its memory unasked */
    bool copies_out;        /* this rank itself copies the peers' writes, so concealed memory is safe at once */
    bool delivers_late;     /* sent data arrive even after this process has closed the link */
    tutti_traffic *traffic; /* counts data, or NULL */
};

static inline void transport_count_sent(const struct transport *transport, size_t bytes)
{
    if (transport->traffic != NULL) transport->traffic->sent += bytes;
}

static inline void transport_count_received(const struct transport *transport, size_t bytes)
{
    if (transport->traffic != NULL) transport->traffic->received += bytes;
}

static inline void transport_count_retry(const struct transport_config *config)
{
    if (config->counters != NULL) config->counters->retries++;
}

#endif
