/* A transport carries messages, and writes into exposed memory, between the ranks of a group tree.  Shared memory
 * (shm/) and libfabric (net/) each implement this table; the message protocol (p2p/) knows nothing else of them.
 *
 * Ranks here are the tree's global ranks.  All calls are made under the tree's lock.  A transport calls its user back
 * from progress and poll, and reports a loss from any call that takes a rank.
 */
#ifndef TCP_TRANSPORT_H
#define TCP_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <tutti/backend.h>

enum {
    TRANSPORT_VERSION = 3,         /* of all messages between ranks; both sides must have the same */
    TRANSPORT_PAYLOAD_MAX = 65536, /* bytes; part of the version */
    TRANSPORT_REDUCE_MAX = 16384,  /* the largest message that is reduced while it is received */
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
    uint64_t id;     /* the sender's name for what it holds */
    uint64_t ref;    /* the receiver's name, from an earlier message's id */
    uint64_t credit; /* cost of all eager messages of the receiver that have found their receive */
    uint8_t flags;   /* not beside kind: a load of both as one word would wait for two stores */
};

/* A write under way.  It belongs to the transport until write_done, unwrite or drop. */
struct transport_write {
    const void *data;
    size_t bytes;
    uint64_t key; /* of the peer's memory; the peer's `written` event carries it */
    void *owner;
    /* The transport's own. */
    TAILQ_ENTRY(transport_write) entry;
    int32_t rank;
    bool queued;           /* on a list of the transport */
    size_t posted, landed; /* bytes handed over, and bytes that have left */
    int64_t begin_ns;
};
TAILQ_HEAD(transport_writes, transport_write);

/* A request's memory while a peer may write to it.  It must not move. */
struct transport_memory {
    tutti_request *request;
    uint64_t key;  /* unique */
    void *staging; /* the data is here instead, because the request reduces it; `written` leaves that to the user */
    /* The transport's own. */
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
    void (*written)(void *user, uint64_t key);                     /* a peer's write to key is complete */
    void (*write_done)(void *user, struct transport_write *write); /* its memory may be reused */
    void (*lost)(void *user, int32_t rank, const char *why);       /* its writes are dropped */
};

struct transport_config {
    int32_t rank;
    int32_t world_size;
    int32_t local_world_size; /* -1 if unknown */
    uint64_t tree_id;
    int64_t timeout_ms, open_timeout_ms; /* of operations; of opening */
    const tutti_host *host;
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
                                     .store = info->store,
                                     .events = events,
                                     .user = user};
}

/* How a message is sent. */
enum transport_path {
    TRANSPORT_EAGER, /* at once, with its data */
    TRANSPORT_READ,  /* the receiver gets the address and reads the message */
    TRANSPORT_WRITE  /* the receiver exposes memory, and the message is written there */
};

struct transport_ops {
    bool (*reaches)(const struct transport *transport, int32_t rank);
    /* Makes sure that there is a link to rank, or that one is being made.  Error: PEER_LOST, with the reason. */
    int (*connect)(struct transport *transport, int32_t rank);
    /* True if messages to rank leave at once. */
    bool (*is_up)(const struct transport *transport, int32_t rank);
    /* Returns why the link was lost, or NULL if it was not. */
    const char *(*lost)(const struct transport *transport, int32_t rank);
    /* True if all that was sent to rank has left this process. */
    bool (*is_flushed)(const struct transport *transport, int32_t rank);
    /* Ends the link for good: no memory of this rank is read or written any more.  With notify, `lost` is called. */
    void (*drop)(struct transport *transport, int32_t rank, const char *why, bool notify);

    /* Sends a message, in order; header and payload are copied.  Does nothing on a lost link. */
    int (*send)(struct transport *transport, int32_t rank, const struct transport_header *header, const void *payload,
                size_t bytes);
    /* Withdraws the message with this kind and id if it still waits.  Returns false if it has left. */
    bool (*unsend)(struct transport *transport, int32_t rank, uint8_t kind, uint64_t id);

    /* Exposes memory->request's data to rank's writes under memory->key.  conceal ends that, but does not stop a write
     * that has begun unless the transport `copies_out`. */
    int (*expose)(struct transport *transport, int32_t rank, struct transport_memory *memory);
    void (*conceal)(struct transport_memory *memory);
    /* Writes to the peer's memory, behind all earlier messages and writes to it. */
    void (*write)(struct transport *transport, int32_t rank, struct transport_write *write);
    /* Withdraws a write.  Returns false if some of it has been posted, or if it is not under way. */
    bool (*unwrite)(struct transport *transport, int32_t rank, struct transport_write *write);
    /* Ends a write that has begun with the pieces already posted: write_done is called once they have left, and the
     * peer never gets `written`.  Returns false if nothing is left to be posted. */
    bool (*cut)(struct transport *transport, int32_t rank, struct transport_write *write);

    /* Chooses how a message above eager_certain goes.  may_eager: the receiver has credit for it.  blocked: the sender
     * waits for this message alone. */
    enum transport_path (*choose)(struct transport *transport, int32_t rank, const tutti_request *request,
                                  bool may_eager, bool blocked);

    /* A transport without single-copy reads leaves the next three NULL.
     *
     * Reads `bytes` of a request's message, from `at` on, out of the peer's memory, where it begins at `from`.  The
     * last part counts only if the peer has not withdrawn the message.  Returns the nanoseconds it took, or 0 if it
     * failed: then the link has been dropped. */
    uint64_t (*read)(struct transport *transport, int32_t rank, tutti_request *request, size_t at, uint64_t from,
                     size_t bytes);
    /* Records what reading this rank's message took the peer. */
    void (*was_read)(struct transport *transport, int32_t rank, const tutti_request *request, uint64_t ns);
    /* Handles messages from rank as they arrive.  Returns after the first, or after a short time without any. */
    void (*poll)(struct transport *transport, int32_t rank);

    int (*progress)(struct transport *transport);
    int (*arm)(struct transport *transport, int *descriptors); /* as tutti_backend.arm */
    /* Prints one line for people.  Returns its length, or 0. */
    int (*describe)(const struct transport *transport, char *text, size_t capacity);
    void (*close)(struct transport *transport); /* no event comes any more */
};

struct transport {
    const struct transport_ops *ops;
    size_t eager_certain; /* messages up to this size go eagerly, if there is credit, without a call of choose */
    size_t eager_max;     /* none above goes eagerly */
    bool early_cts;       /* a round trip costs so much that an expected receive exposes its memory unasked */
    bool copies_out;      /* this rank itself copies what a peer writes, so concealed memory is safe at once */
    bool delivers_late;   /* what was sent arrives even after this process has closed the link */
};

#endif
