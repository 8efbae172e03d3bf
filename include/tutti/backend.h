/* Tutti: the plug-in ABI.
 *
 * A backend is a shared object, libtutti_NAME.so, that exports one constant data symbol:
 *
 *     const tutti_backend tutti_backend_v1 = {TUTTI_BACKEND_HEADER, .name = "mine", .group_bytes = .., ..};
 *
 * It links to no library of Tutti: everything it needs comes through tutti_host.  docs/backend-guide.md walks through
 * an example.  A backend offers one or both of two interfaces:
 *
 *   native          native[kind] does a whole operation (nccl, mpi)
 *   point to point  send and recv of tagged messages (tcp); Tutti builds every collective from them
 *
 * An entry that is NULL, or that returns TUTTI_ERR_UNSUPPORTED, is "not native here".  The core then tries the next
 * way: a plan over point to point, composition of other operations, the group's next backend.
 *
 * THREADS.  A group and all groups made from it form a group tree.  The core calls the entries of one tree under one
 * lock, from whichever thread makes progress.  It never makes two calls at a time, so a backend needs no locks for
 * them.  Different trees are independent and may run in parallel.  No entry may block unless its comment says so.
 *
 * COMPLETION.  native[], send, recv and recv_reduce take a request.  It completes exactly once.  The entry returns
 *
 *   TUTTI_REQUEST_PENDING  host->complete(request, status) will be called once, from within any later entry of the
 *                          group tree, not from a thread of the backend
 *   TUTTI_REQUEST_DONE     it has completed; complete() is not called
 *   TUTTI_REQUEST_COMPARE  native[] only: it was not started, and the backend cannot detect differing calls.  The
 *                          core compares them over point to point and calls again with TUTTI_REQUEST_COMPARED in the
 *                          request's flags; that call must take the operation
 *   TUTTI_REQUEST_ABSENT   with TUTTI_REQUEST_AT_ONCE only: it was not started.  The core calls again, with the flag or
 *                          without
 *   a negative status      it was not started; complete() is not called, and host->error() has set the message
 *
 * Until completion the backend owns the request and the memory that it names, and the request does not move.
 *
 * VERSIONS.  Within a major version structs only grow at the end.  `size` is the size of the struct that its maker
 * knew: use TUTTI_HAS to test for an entry that was added later.
 *
 * The whole interface is in one file, so that a plug-in author reads it once from top to bottom. */
#ifndef TUTTI_BACKEND_H
#define TUTTI_BACKEND_H

#include <string.h>
#include <strings.h>
#include <tutti/op.h>
#include <tutti/stats.h>
#include <tutti/store.h>
#include <tutti/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_BACKEND_ABI 1
#define TUTTI_BACKEND_SYMBOL "tutti_backend_v1"
#define TUTTI_BACKEND_HEADER .abi = TUTTI_BACKEND_ABI, .size = sizeof(tutti_backend)
#define TUTTI_BACKEND_EXPORT __attribute__((visibility("default")))

/* True if *table is long enough to contain the entry, and the entry is set. */
#define TUTTI_HAS(table, entry)                                                                                        \
    ((table)->size >= offsetof(__typeof__(*(table)), entry) + sizeof((table)->entry) && (table)->entry)

enum { TUTTI_REQUEST_PENDING = 0, TUTTI_REQUEST_DONE = 1, TUTTI_REQUEST_COMPARE = 2, TUTTI_REQUEST_ABSENT = 3 };

enum tutti_request_flags {
    /* The peer is certain to post the matching half, and no other message of this group has this tag.  A receiver may
     * expose a large buffer to the sender without waiting for its request. */
    TUTTI_REQUEST_EXPECTED = 1,
    /* A native operation: all ranks have arrived, and their calls agree. */
    TUTTI_REQUEST_COMPARED = 2,
    /* The caller is blocked on this request alone.  The entry may poll for a few hundred nanoseconds, or yield its core
     * a few times, in order to return DONE. */
    TUTTI_REQUEST_AWAITED = 4,
    /* The next three are set only on receives of backends with the trait TUTTI_BACKEND_UNSIZED.  The receive accepts a
     * message of up to `bytes`.  tutti_request_settle sets `bytes` to the size of the matched message. */
    TUTTI_REQUEST_UP_TO = 8,
    /* The receive accepts the oldest message of its peer whose tag has the same highest bit as `tag`.  Receives with
     * this flag and receives for a single tag match messages in the order in which they were posted. */
    TUTTI_REQUEST_ANY_TAG = 16,
    /* The receive is a probe.  It completes as soon as there is an unmatched message that a receive with its peer and
     * tag would take next, of any size and fingerprint.  The message is not received.  Data is NULL. */
    TUTTI_REQUEST_PEEK = 32,
    /* Set only for backends with the trait TUTTI_BACKEND_DEFERS.  The entry completes the request without waiting: recv
     * if the message has arrived, send if it can leave now.  Otherwise it returns ABSENT, and never PENDING.  It keeps
     * nothing of the request, and leaves `priv` zero: the core may pass the same one again. */
    TUTTI_REQUEST_AT_ONCE = 64,
    /* The core withdraws the request unless it completes within this call or the next progress.  A receive had better
     * not begin what takes longer, as its message would then be lost. */
    TUTTI_REQUEST_NOW = 128
};

/* One message or native operation.  Allocated by the core. */
typedef struct tutti_request {
    /* Set by the core. */
    int32_t peer;         /* rank in the group, never the caller's own; TUTTI_ANY_SOURCE for a receive from any rank */
    uint32_t flags;       /* tutti_request_flags */
    uint64_t tag;         /* matched exactly, within the group */
    uint64_t fingerprint; /* sent with the message; a receive that matches another one is a MISMATCH */
    void *data;           /* the buffer; NULL if bytes is 0.  A send never writes to it */
    size_t bytes;
    const void *addend; /* recv_reduce: data = addend op received; may be data itself */
    tutti_dtype dtype;  /* recv_reduce */
    tutti_reduce_op op; /* recv_reduce; never AVG or PREMUL_SUM */
    void *owner;        /* for the core */

    /* Set by the backend before it completes the request. */
    int32_t source;             /* receive: the sender's rank */
    uint64_t found_fingerprint; /* on MISMATCH: the other side's */
    uint64_t found_bytes;

    /* For the backend while the request is pending: a list link, a handle, an event.  64 bytes, zeroed by the core. */
    void *priv[64 / sizeof(void *)];

    /* Added later: valid only if UP_TO, ANY_TAG or PEEK is set. */
    uint64_t fingerprint_mask; /* set by the core: the bits in which the two fingerprints must agree */
    uint64_t found_tag;        /* set by the backend: the tag of the message */
} tutti_request;

/* The flags of a receive that does not know the size or the tag of its message. */
#define TUTTI_REQUEST_OPEN (TUTTI_REQUEST_UP_TO | TUTTI_REQUEST_ANY_TAG | TUTTI_REQUEST_PEEK)

/* True if a receive may match a message with this tag. */
static inline bool tutti_request_takes_tag(const tutti_request *request, uint64_t tag)
{
    if (request->flags & TUTTI_REQUEST_ANY_TAG) return (tag ^ request->tag) >> 63 == 0;
    return tag == request->tag;
}

/* True if the matched message fits the receive; otherwise it is a MISMATCH. */
static inline bool tutti_request_fits(const tutti_request *request, uint64_t bytes, uint64_t fingerprint)
{
    if (request->flags & TUTTI_REQUEST_PEEK) return true;
    if (request->flags & TUTTI_REQUEST_UP_TO)
        return bytes <= request->bytes && ((fingerprint ^ request->fingerprint) & request->fingerprint_mask) == 0;
    return bytes == request->bytes && fingerprint == request->fingerprint;
}

/* Sets the size, tag and fingerprint of an open receive to those of the message that it has matched and that fits.
 * Does nothing for other requests. */
static inline void tutti_request_settle(tutti_request *request, uint64_t tag, uint64_t bytes, uint64_t fingerprint)
{
    if ((request->flags & TUTTI_REQUEST_OPEN) == 0) return;
    request->found_tag = tag;
    request->found_bytes = bytes;
    request->found_fingerprint = fingerprint;
    if ((request->flags & TUTTI_REQUEST_UP_TO) == 0) return;
    request->bytes = (size_t)bytes;
    request->fingerprint = fingerprint;
}

/* The core's services for backends.  All functions may be called from within any entry.  log, now_ns, env and error may
 * also be called from the backend's own threads. */
typedef struct tutti_host {
    uint32_t abi;
    uint32_t size;

    /* Completes a pending request with TUTTI_OK or a negative status.  Set the error message with error() first. */
    void (*complete)(tutti_request *request, int status);

    /* Sets the error message (printf) and returns status. */
    int (*error)(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

    /* Logs a line of subsystem "plugin" if TUTTI_LOG selects its level: 0 error, 1 warning, 2 info, 3 debug.  Use
     * TUTTI_LOG_AS to name the subsystem. */
    void (*log)(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

    int64_t (*now_ns)(void);              /* monotonic clock */
    const char *(*env)(const char *name); /* secure_getenv; NULL if unset or empty */

    /* Computes data = a op b for n elements, with the reductions of Tutti on the CPU.  data may be a or b, and all may
     * be unaligned. */
    void (*reduce)(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *a, const void *b, int64_t n);

    /* Set and get a key in the backend's part of the store.  They block for up to timeout_ms; get waits for the key. */
    int (*store_set)(tutti_store *store, const char *key, const void *value, size_t bytes);
    int (*store_get)(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                     int64_t timeout_ms);

    /* Handshakes between ranks.  token_mac computes the HMAC of message under the job token (32 bytes).  token_equal
     * compares in constant time.  random fills the buffer from the system's generator. */
    void (*token_mac)(uint8_t mac[32], const void *message, size_t bytes);
    bool (*token_equal)(const uint8_t a[32], const uint8_t b[32]);
    void (*random)(void *buffer, size_t bytes);

    /* Delivers a control message of a peer (see notify).  core is the tutti_group_info.core of the group that it was
     * sent on. */
    void (*notified)(void *core, int32_t peer, const void *message, size_t bytes);

    /* Reports that the connection to a peer has ended for good.  If `left` is set, the peer announced its departure
     * first, and only operations that wait for it fail.  Otherwise the core fails every group that the peer is in.
     * why: "connection closed", "left the group", .. */
    void (*peer_lost)(void *core, int32_t peer, bool left, const char *why);

    /* Reports that the group cannot continue although none of its requests may be pending: a device's queue has failed,
     * or hangs in an operation that was reported as DONE.  The core fails the group with status and why after the entry
     * has returned.  core is that group's tutti_group_info.core. */
    void (*failed)(void *core, int status, const char *why);

    /* Sets how long the operation of a pending request ran, before the request completes.  A device measures this
     * better than the host's clock, which counts from the call. */
    void (*took)(tutti_request *request, int64_t ns);

    /* reduce_many reduces n_src sources (1 or more) in their order, like reduce.  16- and 8-bit floats are rounded
     * once.  data may be any source.  average divides the SUM by the divisor, for AVG. */
    void (*reduce_many)(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *const *src, int32_t n_src,
                        int64_t n);
    void (*average)(tutti_dtype dtype, void *data, int64_t n, int64_t divisor);

    /* Registers a descriptor by which peers detect the end of this process.  A forked child closes its copy at once,
     * because the copy would hide the end.  Call forked_forgets before the descriptor is closed. */
    void (*forked_gives_up)(int fd);
    void (*forked_forgets)(int fd);

    /* Appends to the value under key, which is created if absent. */
    int (*store_append)(tutti_store *store, const char *key, const void *value, size_t bytes);

    /* Gathers the entries of n ranks, in a number of requests that does not grow with n.  Each rank passes one entry
     * and the part that it belongs to (for example its host).  Waits until all n ranks have passed theirs, then copies
     * the entries of the same part to `all`, back to back in any order, and their total size to *bytes.  A key is used
     * once.  Errors: TIMEOUT; PEER_LOST if a rank has died. */
    int (*store_gather)(tutti_store *store, const char *key, const char *part, const void *entry, size_t entry_bytes,
                        int32_t n, void *all, size_t capacity, size_t *bytes, int64_t timeout_ms);

    /* Logs a line of this subsystem: one of the names in TUTTI_LOG ("net", "nccl"), or the plug-in's own, which has the
     * level of "plugin".  Lines with the same format pointer count as one place, whose repetitions are limited. */
    void (*log_as)(const char *subsystem, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));
} tutti_host;

/* Logs a line as a subsystem; under a core without subsystems, as all other lines. */
#define TUTTI_LOG_AS(host, subsystem, level, ...)                                                                      \
    (TUTTI_HAS(host, log_as) ? (host)->log_as(subsystem, level, __VA_ARGS__) : (host)->log(level, __VA_ARGS__))

/* True for a long copy whose target begins up to 31 bytes after the source's place in its page.  By rep movsb, which
 * Linux and glibc before 2.39 use, it takes ten times as long on AMD's Zen 3 and 4 (glibc's bug 30994). */
static inline bool tutti_is_slow_distance(size_t distance, size_t bytes)
{
    return bytes >= 2048 && distance % 4096 - 1 < 31;
}

static inline bool tutti_copy_is_slow(const void *to, const void *from, size_t bytes)
{
    size_t distance = (size_t)((uintptr_t)to - (uintptr_t)from);
    return tutti_is_slow_distance(distance, bytes) && distance >= bytes;
}

/* Copies like memmove, but inline for 4 and 8 bytes, where the call costs more than the copy. */
static inline void tutti_copy(void *to, const void *from, size_t bytes)
{
    enum { SHORT = 1024 }; /* copied by other instructions */
    size_t at = 0;
    if (bytes == sizeof(uint32_t))
        memmove(to, from, sizeof(uint32_t));
    else if (bytes == sizeof(uint64_t))
        memmove(to, from, sizeof(uint64_t));
    else if (bytes > 0 && to != from) {
        if (tutti_copy_is_slow(to, from, bytes))
            for (; bytes - at > SHORT; at += SHORT) memmove((char *)to + at, (const char *)from + at, SHORT);
        memmove((char *)to + at, (const char *)from + at, bytes - at);
    }
}

/* Delivers the bytes from offset `at` on of the message that matched a request of recv or recv_reduce: copies or
 * reduces them into the request's data. */
static inline void tutti_request_take(const tutti_host *host, const tutti_request *request, size_t at,
                                      const void *received, size_t bytes)
{
    char *data = (char *)request->data + at;
    if (bytes == 0) return;
    if (request->addend == NULL)
        tutti_copy(data, received, bytes);
    else
        host->reduce(request->dtype, request->op, data, (const char *)request->addend + at, received,
                     (int64_t)bytes / tutti_dtype_bytes(request->dtype));
}

/* Parses a boolean of the environment, the same way for all of Tutti's variables.  Returns 1 for 1, true, yes and on, 0
 * for 0, false, no and off, and -1 for anything else. */
static inline int tutti_parse_bool(const char *text)
{
    static const char *const words[2][4] = {{"0", "false", "no", "off"}, {"1", "true", "yes", "on"}};
    for (int value = 0; value < 2; value++)
        for (int i = 0; i < 4; i++)
            if (strcasecmp(text, words[value][i]) == 0) return value;
    return -1;
}

/* Returns a boolean of the environment for a plug-in: fallback if it is unset, or, after a warning, malformed. */
static inline bool tutti_env_bool(const tutti_host *host, const char *name, bool fallback)
{
    const char *text = host->env(name);
    int value = text != NULL ? tutti_parse_bool(text) : fallback;
    if (value < 0)
        host->log(1, "%s=%.40s is not a boolean (use 0, false, no, off, 1, true, yes or on); using %d", name, text,
                  fallback ? 1 : 0);
    return value < 0 ? fallback : value != 0;
}

/* The size of the data that `offer` distributes to the members of a group. */
#define TUTTI_OFFER_BYTES 16

/* Describes a group to the backend that opens it. */
typedef struct tutti_group_info {
    uint32_t size; /* sizeof(tutti_group_info) of the core */
    int32_t rank;
    int32_t world_size;
    const int32_t *global_ranks; /* world_size entries: ranks of parent's group; valid as long as the group */
    uint64_t id;                 /* the same on all members, and different from all other groups of the tree */
    void *parent;                /* state of the tree's first group with this backend, NULL for that group itself.  Its
                                    ranks are the global ranks: share its connections */
    void *core;                  /* passed back to host->notified, peer_lost and failed */
    tutti_store *store;          /* this backend's part of the group's store, empty at first; valid as long as the
                                    group */
    tutti_device device;         /* this rank's device */
    int64_t timeout_ms;          /* the default of the group's operations */
    int32_t local_rank;          /* -1 if unknown */
    int32_t local_world_size;    /* ranks on this host according to the launcher; -1 if unknown */
    bool high_priority;
    const char *name; /* for messages */

    /* Set if all ranks of another group with this backend make groups of it at the same time, as a split does.  Each
     * rank makes this one, another one, or none (see abstain).  made_from is the other group's state, valid during
     * open.  color is the same number on ranks that will be in the same group. */
    void *made_from;
    int32_t color;

    /* The user has selected algorithms, or requires results that do not depend on the size.  A collective of the
     * backend that provides neither must return UNSUPPORTED if a plan of the core can replace it, which is not the case
     * for device memory.  The same on all ranks. */
    bool plans_only;

    /* Limit of open's wait for the other ranks; 0: timeout_ms. */
    int64_t open_timeout_ms;

    /* The data that this backend's `offer` wrote on the group's leader: TUTTI_OFFER_BYTES, valid during open.  NULL if
     * it was not called. */
    const uint8_t *offer;

    /* The counters of the group's tree, to which the backend adds under the tree's lock.  Valid as long as the tree.
     * May be absent. */
    tutti_counters *counters;
} tutti_group_info;

/* Counts an operation's data: this rank's inputs as sent, and its outputs as received. */
static inline void tutti_traffic_count(tutti_traffic *traffic, const tutti_op *op)
{
    uint64_t bytes = (uint64_t)tutti_dtype_bytes(op->dtype);
    for (int i = 0; i < op->n_in; i++) traffic->sent += (uint64_t)op->in[i].numel * bytes;
    for (int i = 0; i < op->n_out; i++) traffic->received += (uint64_t)op->out[i].numel * bytes;
}

/* A path: one of a backend's own ways to do operations of a kind.  It is named like an algorithm of plans, so that
 * TUTTI_ALGO, tuning files and tutti_explain reach it. */
typedef struct tutti_path {
    tutti_kind kind;
    int32_t number;   /* identifies the path to the backend, from 0 */
    const char *name; /* [a-z0-9_]+, unlike any algorithm's of the kind */
} tutti_path;

/* The path of an operation that the backend must answer with UNSUPPORTED, because a plan was chosen for it. */
enum { TUTTI_PATH_PLAN = -1 };

/* A row of a choice between paths: for operations of up to max_bytes, counted over the blocks of all ranks. */
typedef struct tutti_path_row {
    tutti_kind kind;
    int32_t path; /* a tutti_path's number, or TUTTI_PATH_PLAN */
    int64_t max_bytes;
} tutti_path_row;

/* Returns the first of n rows that is for the kind and the size, or NULL. */
static inline const tutti_path_row *tutti_path_find(const tutti_path_row *rows, int32_t n, tutti_kind kind,
                                                    int64_t bytes)
{
    for (int32_t i = 0; i < n; i++)
        if (rows[i].kind == kind && bytes <= rows[i].max_bytes) return &rows[i];
    return NULL;
}

/* How fast messages are, for the selection of algorithms.  0: unknown. */
typedef struct tutti_link {
    int64_t latency_ns;   /* time from the call that sends a small message to its arrival */
    int64_t overhead_ns;  /* the part of it for which a processor is busy, on each side */
    int64_t bytes_per_us; /* bandwidth of a large message */
    int32_t latency_from; /* tutti_link_source of the first two, and of the third */
    int32_t bytes_from;
} tutti_link;

enum tutti_link_source {
    TUTTI_LINK_ASSUMED = 0,   /* a constant */
    TUTTI_LINK_INTERFACE = 1, /* reported by the device or its driver */
    TUTTI_LINK_MEASURED = 2
};

typedef struct tutti_links {
    uint32_t size;      /* sizeof(tutti_links) of the core */
    uint32_t cores;     /* set by the core: cores that the ranks of a host share, 0: each has its own */
    tutti_link between; /* ranks of different hosts */
    tutti_link within;  /* ranks of one host */
} tutti_links;

/* The largest message of notify, in bytes. */
#define TUTTI_NOTIFY_MAX 512

/* The largest number of descriptors from arm. */
#define TUTTI_ARM_MAX 8

/* The capacity of native[]: new kinds use free entries, so no other entry moves. */
#define TUTTI_KINDS_MOST 32

/* The table that a plug-in exports.  The core never writes to it. */
typedef struct tutti_backend {
    uint32_t abi;
    uint32_t size;
    const char *name;    /* [a-z0-9_]{1,32}, as in libtutti_NAME.so */
    const char *version; /* version of the plug-in and of the library it uses, for logs */
    size_t group_bytes;  /* size of a group's state, which the core allocates, zeroed and aligned to 64 */
    uint32_t devices;    /* bit mask of tutti_device_type whose tensors it accepts: 1u << TUTTI_CPU */

    /* Returns TUTTI_OK if the backend can work on this machine (a driver, a device, an interface), else a status with
     * the error message set.  May block briefly.  Optional: without it, the backend can. */
    int (*probe)(const tutti_host *host);

    /* Initialises the state of a group.  All members call it, after all have loaded the plug-in and probe has succeeded
     * on all.  It may talk to them through info->store, and may block, bounded by info->timeout_ms.  After an error the
     * core calls close on the same state.  Mandatory. */
    int (*open)(void *group, const tutti_group_info *info, const tutti_host *host);

    /* Releases everything, also after a failed open and on a zeroed state.  Pending requests are dropped: complete() is
     * not called after close, and their memory is not accessed.  May block up to 1 s.  Mandatory. */
    void (*close)(void *group);

    /* Native operations.  op is valid only during the call; the tensors and splits that it points to stay valid while
     * the request is pending.  Of the request only flags, priv, owner and fingerprint are set.  A backend that
     * exchanges the fingerprint detects differing calls: it then completes the request with MISMATCH, with source and
     * found_fingerprint set.  Each entry is optional. */
    int (*native[TUTTI_KINDS_MOST])(void *group, const tutti_op *op, tutti_request *request);

    /* Start a message: both entries, or neither.  send may return DONE once data may be reused.  Messages of one pair,
     * group and tag arrive in order.  A send never waits for a receive of another tag. */
    int (*send)(void *group, tutti_request *request);
    int (*recv)(void *group, tutti_request *request);

    /* Receives a message and reduces it: data = addend op received, for messages of up to recv_reduce_most bytes.
     * Optional. */
    int (*recv_reduce)(void *group, tutti_request *request);

    /* Makes progress without blocking.  Returns more than 0 if anything happened.  Called for the tree's first group.
     * Mandatory if any entry returns PENDING. */
    int (*progress)(void *group);

    /* Prepares to sleep: fills at most TUTTI_ARM_MAX descriptors that become readable (POLLIN) when progress has
     * something to do, and returns their number.  0 means that there is something to do now.  Called for the tree's
     * first group.
     *
     * The core first polls for 0.1 ms, then calls arm again before it sleeps for longer.  So an event that arrives
     * during the first call need not make a descriptor readable if the second call finds it.  A backend whose stores
     * and loads are ordered by fences needs no second call.
     *
     * Optional: without it the core sleeps in short intervals.  Without arm and notify it calls progress of an idle
     * tree every 20 ms, for control messages. */
    int (*arm)(void *group, int *descriptors);

    /* Cancels a pending request.  After TUTTI_OK its memory is not accessed any more, and complete() is not called.
     * After an error, which means too late or not possible, complete() is called.  Optional. */
    int (*cancel)(void *group, tutti_request *request);

    /* Sends a short control message to peer, independent of all ordering and matching.  Best effort: it is dropped if
     * there is no connection.  The receiver passes it to host->notified.  A control message for a group that the
     * receiver has closed is answered with one of no bytes, sent after all data of the group.
     *
     * Optional: without it the core sends control messages as messages of one size under a reserved tag (only bit 62 is
     * set). It keeps a receive from TUTTI_ANY_SOURCE posted for them, or one for each peer if that is refused. */
    int (*notify)(void *group, int32_t peer, const void *message, size_t bytes);

    /* Assumptions for the selection of algorithms: latency of a small message, bandwidth of a large one, a good segment
     * size for pipelining.  0: unknown.  See `links` for a backend that can find the first two. */
    int64_t latency_ns;
    int64_t bytes_per_us;
    int64_t segment_bytes;

    /* Bit mask of tutti_backend_traits. */
    uint32_t traits;

    /* Makes operations in progress release their memory after the group has failed, including those that were reported
     * as DONE and are still in a device's queue.  The core starts nothing more on the group, cancels what is pending,
     * then closes it.  May block up to 1 s.  Optional. */
    void (*abort)(void *group);

    /* Makes stream (as in tutti_opts) wait for a pending request, without blocking the host.  After
     * TUTTI_ERR_UNSUPPORTED, which means not yet, the core waits for the request itself.  Optional. */
    int (*wait_stream)(void *group, tutti_request *request, void *stream);

    /* Allocate and free memory on the group's device, aligned to at least 64, that the backend can access best.  Device
     * memory is freed before the group is closed.  CPU memory is freed with any group of the tree; memory that is not
     * freed when the tree ends stays valid (see reclaim).  On CPU alloc may return UNSUPPORTED if system memory is as
     * good.  Both may block, because a device may have to catch up.  Both, or neither. */
    int (*alloc)(void *group, size_t bytes, void **memory);
    int (*free)(void *group, void *memory);

    /* Opens (begin) and closes a batch: native operations in between may be started together, at the end at the latest.
     * The tree's progress is not called in between.  An error at the end means that the group has failed.  Optional. */
    int (*coalesce)(void *group, bool begin);

    /* Fills the host number of each rank, world_size entries: equal for ranks that share a host, different for others.
     * Algorithms follow from these numbers, so every rank must get the same.  Called once, after all ranks have opened,
     * for the tree's first group with this backend.  May use info->store, and may block as open does.  Optional: then
     * all ranks are on one host. */
    int (*hosts)(void *group, int32_t *host);

    /* Writes text for people, in lines that end with \n.  It describes this machine if group is NULL (libraries,
     * devices, what open would use), else what the group uses.  At most capacity bytes including the final zero; longer
     * text is truncated.  May block briefly if group is NULL.  Optional. */
    int (*describe)(const tutti_host *host, void *group, char *text, size_t capacity);

    /* Stage tensors: another backend does operations on this device's tensors on copies in host memory.  The plug-in
     * named after the device ("cuda") provides it.
     *
     * stage_open checks op's tensors and stream (INVALID_ARGUMENT with what is wrong) and allocates `bytes` of host
     * memory, aligned to 64, that the device copies from and to at full speed.  native[TUTTI_COPY] copies op->in[i] to
     * op->out[i].  One of the two is in that memory, and op->stream is the stage.  Copies run after the work that op's
     * stream had when the stage was opened, not after later work, and complete when the data has arrived.  stage_close:
     * no more copies are started, and a cancelled one may still be running.  Neither may block.  Both and
     * native[TUTTI_COPY], or none. */
    int (*stage_open)(void *group, const tutti_op *op, size_t bytes, void **stage, void **memory);
    void (*stage_close)(void *group, void *stage);

    /* Announces the departure to the peers, as close does, when the process exits with an open group.  Releases
     * nothing, because other threads may still be in calls.  Called for the tree's first group.  May block up to 0.3 s.
     * Optional. */
    void (*leave)(void *group);

    /* Reports that all ranks of the group make groups of it (tutti_group_info.made_from), and that this rank will be in
     * none of them.  May block, bounded by the group's timeout.  Optional. */
    int (*abstain)(void *group);

    /* Sets the entries of the ranks that a pending request of native[] waits for; ranks has world_size entries, all
     * false before.  It explains waits and finds ranks whose calls differ.  Optional. */
    void (*awaits)(void *group, const tutti_request *request, bool *ranks);

    /* True if peers answer without the kernel's help as soon as they run.  A rank that shares its core with them then
     * yields a few times before it sleeps.  Called once, for the tree's first group.  Optional. */
    bool (*is_near)(void *group);

    /* Returns how native[op->kind] would do op ("through shared memory, in one step"), or NULL if it would return
     * UNSUPPORTED.  Does not look at the tensors.  Optional: then every entry of native[] is taken to do its
     * operation. */
    const char *(*explain)(void *group, const tutti_op *op);

    /* The largest message, in bytes, for which recv_reduce is faster than a receive and a reduction by the core, which
     * buffers at most four messages.  0: all. */
    int64_t recv_reduce_most;

    /* Returns the table to use in place of this one, with the same name, for a plug-in that selects between others.
     * Such a plug-in's own table needs only its name and this entry.  Called once, after loading.  NULL: there is none,
     * and host->error has the reason.  Optional. */
    const struct tutti_backend *(*instead)(const tutti_host *host);

    /* Returns a rank that may not have received everything that was sent to it and reported as complete, or -1 if every
     * other rank has or has ended.  The first call announces the departure to all peers, and the core starts nothing
     * after it.  Called for the tree's first group before close and before leave, alternately with progress, until it
     * returns -1 or the time for delivery has passed.  Must not block.  Optional. */
    int32_t (*drain)(void *group);

    /* Sends a control message like notify, but reliably: it connects if necessary, and the messages of one pair arrive
     * in order.  An error (PEER_LOST) means that the message cannot arrive; a peer that is lost later is reported with
     * peer_lost.  With this entry the ranks of a tree agree on groups made from it.  Called for the tree's first group.
     * Optional. */
    int (*tell)(void *group, int32_t peer, const void *message, size_t bytes);

    /* Called before a group is made from a tree; group is the tree's first one with this backend.  ready returns
     * whether this rank can open it, and is called on all members before any of them opens.  offer is called on one
     * member once all are ready: it fills TUTTI_OFFER_BYTES (zeroed), which every member gets in
     * tutti_group_info.offer, and may block briefly.  An error of either fails the creation on all members.  Each is
     * optional, and used only with tell. */
    int (*ready)(void *group);
    int (*offer)(void *group, const tutti_group_info *info, uint8_t *offer);

    /* Frees memory of alloc, of `bytes` as it was requested, after all groups of its tree have been closed.  Called
     * from any thread.  Optional: without it such memory stays until the process ends. */
    void (*reclaim)(void *memory, size_t bytes);

    /* The paths by which native[] does operations, terminated by a NULL name.  With them, the text that `explain`
     * returns begins with the name of the path and ": ".  Optional. */
    const tutti_path *paths;

    /* Sets rows that have precedence over the backend's own choice: those of names (TUTTI_ALGO), then the measured ones
     * (TUTTI_TUNING).  They are the same on all ranks and stay valid until the group is closed.  If the backend cannot
     * do an operation by its row's path, it chooses as it would without the row.  Called after open, before the first
     * operation, if there are any rows.  A backend with this entry gets no plans_only for named algorithms.
     * Optional. */
    void (*choose)(void *group, const tutti_path_row *rows, int32_t n);

    /* Finds how fast messages are: fills what it knows in a zeroed tutti_links, which precedes latency_ns and
     * bytes_per_us.  Called on all ranks after `hosts`, once, for the tree's first group with this backend, so two
     * ranks can measure together.  The core rounds rank 0's figures and uses them on all ranks and in all groups of the
     * tree; those of other ranks are ignored.  Must not use the store.  May block for as long as a measurement takes,
     * bounded by a small part of info->open_timeout_ms.  An error of rank 0 fails the creation of the group on all
     * ranks, one of another rank only if rank 0 does not report.  Optional. */
    int (*links)(void *group, tutti_links *links);
} tutti_backend;

/* Properties of a backend: see tutti_backend.traits. */
enum tutti_backend_traits {
    /* Native operations of a group take effect in the order in which they were started, whatever memory they share.
     * The core then starts each at once, in order of issue, and never delays one for an earlier one. */
    TUTTI_BACKEND_ORDERED = 1,

    /* recv supports TUTTI_REQUEST_UP_TO, TUTTI_REQUEST_ANY_TAG and TUTTI_REQUEST_PEEK. */
    TUTTI_BACKEND_UNSIZED = 2,

    /* Opening a group that has a parent does not involve other ranks. */
    TUTTI_BACKEND_OPENS_ALONE = 4,

    /* A message of up to TUTTI_DEFERRED_MAX bytes leaves its sender without waiting for its receive.  For messages of
     * that size the core tries TUTTI_REQUEST_AT_ONCE first, and calls recv for asynchronous receives when it next makes
     * progress. */
    TUTTI_BACKEND_DEFERS = 8
};

/* In bytes: see TUTTI_BACKEND_DEFERS. */
enum { TUTTI_DEFERRED_MAX = 4096 };

#ifdef __cplusplus
}
#endif
#endif
