/* Tutti: the plug-in ABI.
 *
 * A backend is a shared object, libtutti_NAME.so, that exports one constant data symbol:
 *
 *     const tutti_backend tutti_backend_v1 = {TUTTI_BACKEND_HEADER, .name = "mine", .group_bytes = .., ..};
 *
 * It links to nothing of Tutti's: everything it needs comes through tutti_host.  docs/backend-guide.md walks through an
 * example.  A backend offers one or both of two interfaces:
 *
 *   native          native[kind] does a whole operation (nccl, mpi)
 *   point to point  send and recv of tagged messages (tcp); from these alone Tutti builds every collective
 *
 * An entry that is NULL, or that answers TUTTI_ERR_UNSUPPORTED before it has begun, means "not native here".  The core
 * then tries the next way: a plan over point to point, composition, the group's next backend.
 *
 * THREADS.  A group and the groups made from it are a family.  The core calls all entries of one family under one
 * lock, from whichever thread makes progress: never two at a time, so a backend needs no locks of its own for them.
 * Families are independent and may run at the same time.  No entry may block unless its comment says so.
 *
 * ONCE.  A request is handed over by native[], send, recv or recv_reduce.  The entry answers
 *   TUTTI_REQUEST_PENDING  host->complete(request, status) will be called exactly once, from within any later entry of
 *                          the family (not from a thread of the backend's own)
 *   TUTTI_REQUEST_DONE     it is complete already, complete() is not called
 *   TUTTI_REQUEST_COMPARE  native[] alone: it was not begun, and cannot tell by itself when the ranks' calls differ.
 *                          The core lets them compare over the point-to-point door, then calls again with
 *                          TUTTI_REQUEST_COMPARED among the request's flags; that call must take the operation
 *   a negative status      it was not begun, complete() is not called; host->error() has set the sentence
 *
 * Until completion the request and the memory it names belong to the backend; it may not move.
 *
 * VERSIONS.  Within a major version structs only grow at the end.  `size` is how much of the struct its maker knew:
 * test an entry of the other side's struct with TUTTI_HAS before using one that was added later.
 */
#ifndef TUTTI_BACKEND_H
#define TUTTI_BACKEND_H

#include <string.h>
#include <strings.h>
#include <tutti/store.h>
#include <tutti/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_BACKEND_ABI 1
#define TUTTI_BACKEND_SYMBOL "tutti_backend_v1"
#define TUTTI_BACKEND_HEADER .abi = TUTTI_BACKEND_ABI, .size = sizeof(tutti_backend)
#define TUTTI_BACKEND_EXPORT __attribute__((visibility("default")))

/* True if *table is long enough to have the entry, and the entry is set. */
#define TUTTI_HAS(table, entry)                                                                                        \
    ((table)->size >= offsetof(__typeof__(*(table)), entry) + sizeof((table)->entry) && (table)->entry)

enum { TUTTI_REQUEST_PENDING = 0, TUTTI_REQUEST_DONE = 1, TUTTI_REQUEST_COMPARE = 2 };

enum tutti_request_flags {
    /* The peer is certain to post the matching half, and no other message of this group has this tag.  A receiver may
     * open a large buffer to the sender before it is asked. */
    TUTTI_REQUEST_EXPECTED = 1,
    /* A native operation: all ranks have arrived, and their calls agree. */
    TUTTI_REQUEST_COMPARED = 2,
    /* The caller is blocked on this message alone (as on a native operation without async).  The entry may poll for
     * some hundred nanoseconds, or yield its core a few times, so that it can answer DONE. */
    TUTTI_REQUEST_AWAITED = 4,
    /* The next three are set on receives of backends with the trait TUTTI_BACKEND_UNSIZED alone.
     * The receive takes a message of up to `bytes`.  When it meets one, tutti_request_settle makes `bytes` that
     * message's. */
    TUTTI_REQUEST_UP_TO = 8,
    /* The receive takes a message of any tag that agrees with `tag` in the highest bit: the oldest of those from its
     * peer.  A receive with this flag and one for a single tag meet messages in the order in which they were posted. */
    TUTTI_REQUEST_ANY_TAG = 16,
    /* The receive takes nothing.  It completes as soon as a message is there that no receive has met and that a receive
     * of its peer and tag would take next, of any size and fingerprint.  The message stays.  Data is NULL. */
    TUTTI_REQUEST_PEEK = 32
};

/* One pending message or native operation.  Allocated by the core. */
typedef struct tutti_request {
    /* Set by the core. */
    int32_t peer;         /* rank in the group, never the own one; TUTTI_ANY_SOURCE for a receive from whoever */
    uint32_t flags;       /* tutti_request_flags */
    uint64_t tag;         /* matched exactly, within the group */
    uint64_t fingerprint; /* travels with the message; a receive that meets another one is a mismatch */
    void *data;           /* what is sent; where it goes; NULL with 0 bytes.  A send never writes to it */
    size_t bytes;
    const void *addend; /* recv_reduce: data = addend op received; may be data itself */
    tutti_dtype dtype;  /* recv_reduce */
    tutti_reduce_op op; /* recv_reduce; never AVG or PREMUL_SUM */
    void *owner;        /* the core's */

    /* Set by the backend before it completes the request. */
    int32_t source;             /* a receive: the peer that sent */
    uint64_t found_fingerprint; /* MISMATCH: what the other side had */
    uint64_t found_bytes;

    /* For the backend while the request is pending: a list link, a handle, an event.  Zeroed by the core. */
    void *priv[8];

    /* Appended: there if one of the flags UP_TO, ANY_TAG and PEEK is set. */
    uint64_t fingerprint_mask; /* set by the core: the bits in which the two fingerprints have to agree */
    uint64_t found_tag;        /* set by the backend: the message's */
} tutti_request;

/* The flags of a receive that does not know its message's size or tag. */
#define TUTTI_REQUEST_OPEN (TUTTI_REQUEST_UP_TO | TUTTI_REQUEST_ANY_TAG | TUTTI_REQUEST_PEEK)

/* True if a receive may meet a message of this tag. */
static inline bool tutti_request_takes_tag(const tutti_request *request, uint64_t tag)
{
    if (request->flags & TUTTI_REQUEST_ANY_TAG) return (tag ^ request->tag) >> 63 == 0;
    return tag == request->tag;
}

/* True if the matched message agrees with the receive; else it is a MISMATCH. */
static inline bool tutti_request_fits(const tutti_request *request, uint64_t bytes, uint64_t fingerprint)
{
    if (request->flags & TUTTI_REQUEST_PEEK) return true;
    if (request->flags & TUTTI_REQUEST_UP_TO)
        return bytes <= request->bytes && ((fingerprint ^ request->fingerprint) & request->fingerprint_mask) == 0;
    return bytes == request->bytes && fingerprint == request->fingerprint;
}

/* Sets the size, tag and fingerprint of an open receive from the message that it has matched, which fits.  Does nothing
 * for other requests. */
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

/* One operation.  Tensors have been checked: they are on the backend's device, their dtypes agree, their sizes fit the
 * kind.  Valid during the call only. */
typedef struct tutti_op {
    uint32_t size; /* sizeof(tutti_op) of the core */
    tutti_kind kind;
    tutti_reduce_op reduce_op;
    tutti_dtype dtype;
    int32_t root; /* root or peer: rank in the group; TUTTI_ANY_SOURCE; -1 where there is none */
    int32_t tag;
    uint64_t sequence;   /* place among the group's collectives, from 1; 0 for point to point */
    int32_t n_in, n_out; /* tensors: 0, 1 (flat), or the group's size (a list) */
    const tutti_tensor *in;
    const tutti_tensor *out;
    const int64_t *in_splits; /* all_to_all_single: elements a rank; NULL: equal parts */
    const int64_t *out_splits;
    double factor;      /* PREMUL_SUM */
    void *stream;       /* as tutti_opts */
    int64_t timeout_ms; /* of this operation */
    bool async;         /* async_op was asked for */
    bool list;          /* the caller used the form with a list (also on ranks that pass none) */
    uint64_t call;      /* calls of a group with the same number here, other than 0, are alike in kind, reduce_op,
                           dtype, root, tensors and form: what was found of one of them holds for the others */
    bool up_to;         /* a receive of up to its tensor's size; never native, as one of TUTTI_ANY_TAG */
} tutti_op;

/* The kinds that reduce, and those with a root. */
static inline bool tutti_kind_reduces(tutti_kind kind)
{
    return kind == TUTTI_ALL_REDUCE || kind == TUTTI_REDUCE || kind == TUTTI_REDUCE_SCATTER;
}

static inline bool tutti_kind_has_root(tutti_kind kind)
{
    return kind == TUTTI_BROADCAST || kind == TUTTI_REDUCE || kind == TUTTI_GATHER || kind == TUTTI_SCATTER;
}

/* The core's services for backends.  All functions may be called from within any entry; log, now_ns, env and error also
 * from the backend's own threads. */
typedef struct tutti_host {
    uint32_t abi;
    uint32_t size;

    /* Ends a pending request with TUTTI_OK or a negative status.  Set the error text with error() first. */
    void (*complete)(tutti_request *request, int status);

    /* Sets the error text for status (printf) and returns status. */
    int (*error)(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

    /* level: 0 error, 1 warning, 2 info, 3 debug.  Shown as TUTTI_LOG says. */
    void (*log)(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

    int64_t (*now_ns)(void);              /* monotonic */
    const char *(*env)(const char *name); /* secure_getenv; NULL where unset or empty */

    /* data = a op b, n elements, by the rules of Tutti's CPU reductions; data may be a or b.  Unaligned is fine. */
    void (*reduce)(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *a, const void *b, int64_t n);

    /* The backend's part of the store: blocks up to timeout_ms (get waits for the key). */
    int (*store_set)(tutti_store *store, const char *key, const void *value, size_t bytes);
    int (*store_get)(tutti_store *store, const char *key, void *buffer, size_t capacity, size_t *bytes,
                     int64_t timeout_ms);

    /* HMAC of message under the job token, 32 bytes, for handshakes between ranks; equal() takes constant time;
     * random() fills from the system's generator. */
    void (*token_mac)(uint8_t mac[32], const void *message, size_t bytes);
    bool (*token_equal)(const uint8_t a[32], const uint8_t b[32]);
    void (*random)(void *buffer, size_t bytes);

    /* Delivers a control message of a peer (see notify); core is tutti_group_info.core of the group it was sent on. */
    void (*notified)(void *core, int32_t peer, const void *message, size_t bytes);

    /* Reports that the connection to a peer has ended for good.  If `left` is set, the peer said goodbye first, and
     * only operations that still wait for it fail.  Otherwise the core fails every group that the peer is in.  why:
     * "connection closed", "left the group", .. */
    void (*peer_lost)(void *core, int32_t peer, bool left, const char *why);

    /* The group cannot go on, though no request of it may be pending: a device's queue has met an error or stands still
     * in an operation that was answered DONE.  core is that group's tutti_group_info.core; the core fails the group
     * with status and why, once the entry has returned. */
    void (*failed)(void *core, int status, const char *why);

    /* How long a pending request's operation took where it ran, told before it is completed: a device knows better than
     * the host's clock, which counts from the call. */
    void (*took)(tutti_request *request, int64_t ns);

    /* As reduce, of n_src sources (from 1) in their order: 16- and 8-bit floats are rounded once; data may be any
     * source.  average divides by the divisor what SUM has made of AVG. */
    void (*reduce_many)(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *const *src, int32_t n_src,
                        int64_t n);
    void (*average)(tutti_dtype dtype, void *data, int64_t n, int64_t divisor);

    /* A descriptor by which the peers notice this process's end: a forked child, whose copy would hide it, gives it up
     * at once.  forked_forgets comes before it is closed. */
    void (*forked_gives_up)(int fd);
    void (*forked_forgets)(int fd);

    /* Appends to the value under key, which is made when absent. */
    int (*store_append)(tutti_store *store, const char *key, const void *value, size_t bytes);

    /* Gathers the entries of n ranks, in a number of requests that does not grow with n.  Each rank gives one entry
     * and names the part it belongs to (its host, say).  Waits until all n ranks have given theirs, then copies the
     * entries of the same part to `all`, one behind the other in any order, and their size to *bytes.  A key serves
     * once.  Errors: TIMEOUT; PEER_LOST where a rank has died meanwhile. */
    int (*store_gather)(tutti_store *store, const char *key, const char *part, const void *entry, size_t entry_bytes,
                        int32_t n, void *all, size_t capacity, size_t *bytes, int64_t timeout_ms);
} tutti_host;

/* As memmove, which takes longer to be called than a word takes to be copied. */
static inline void tutti_copy(void *to, const void *from, size_t bytes)
{
    if (bytes == sizeof(uint32_t))
        memmove(to, from, sizeof(uint32_t));
    else if (bytes == sizeof(uint64_t))
        memmove(to, from, sizeof(uint64_t));
    else if (bytes > 0 && to != from)
        memmove(to, from, bytes);
}

/* For recv and recv_reduce alike: puts what came of the request's message, from `at` on, where it belongs. */
static inline void tutti_request_take(const tutti_host *host, const tutti_request *request, size_t at, const void *came,
                                      size_t bytes)
{
    char *data = (char *)request->data + at;
    if (bytes == 0) return;
    if (request->addend == NULL)
        tutti_copy(data, came, bytes);
    else
        host->reduce(request->dtype, request->op, data, (const char *)request->addend + at, came,
                     (int64_t)bytes / tutti_dtype_bytes(request->dtype));
}

/* What a variable of the environment says, by the one rule for all of Tutti's: 1, true, yes and on are 1; 0, false, no
 * and off are 0; anything else is -1. */
static inline int tutti_parse_bool(const char *text)
{
    static const char *const words[2][4] = {{"0", "false", "no", "off"}, {"1", "true", "yes", "on"}};
    for (int value = 0; value < 2; value++)
        for (int i = 0; i < 4; i++)
            if (strcasecmp(text, words[value][i]) == 0) return value;
    return -1;
}

/* The same for a plug-in: fallback where it is unset, and, after a warning, where it says neither. */
static inline bool tutti_env_bool(const tutti_host *host, const char *name, bool fallback)
{
    const char *text = host->env(name);
    int value = text != NULL ? tutti_parse_bool(text) : fallback;
    if (value < 0)
        host->log(1, "%s=%.40s is neither 0, false, no or off nor 1, true, yes or on; %d is taken", name, text,
                  fallback ? 1 : 0);
    return value < 0 ? fallback : value != 0;
}

/* What the leading rank of a group may tell the others about it: see offer. */
#define TUTTI_OFFER_BYTES 16

typedef struct tutti_group_info {
    uint32_t size; /* sizeof(tutti_group_info) of the core */
    int32_t rank;
    int32_t world_size;
    const int32_t *global_ranks; /* world_size entries: ranks of parent's group; valid as long as the group */
    uint64_t id;                 /* the same on all members, unlike any other group's of the family */
    void *parent;                /* state of the family's first group with this backend, NULL for that one itself.  Its
                                    ranks are the global ranks: share its connections */
    void *core;                  /* to be handed back to host->notified and peer_lost */
    tutti_store *store;          /* this backend's part of the group's, empty at first; valid as long as the group */
    tutti_device device;         /* this rank's */
    int64_t timeout_ms;          /* the group's default */
    int32_t local_rank;          /* -1 where unknown */
    int32_t local_world_size;    /* ranks on this host, as the launcher says; -1 where unknown */
    bool high_priority;
    const char *name; /* for messages */

    /* Set where all ranks of another group with this backend make groups of it at once (this one, others, or none: see
     * abstain): that one's state, valid during open, and a number alike for those that will be together. */
    void *made_from;
    int32_t color;

    /* The user has named algorithms, or wants the same bits whatever the size: collectives of the backend's own that
     * have neither are to be answered UNSUPPORTED, where the core's plans can take their place (not on a device's
     * memory).  The same on all ranks. */
    bool plans_only;

    /* How long open may wait for the other ranks.  0: as timeout_ms. */
    int64_t open_timeout_ms;

    /* What this backend's `offer` said on the group's leading rank; TUTTI_OFFER_BYTES, valid during open.  NULL: nobody
     * was asked. */
    const uint8_t *offer;
} tutti_group_info;

/* At most this many bytes in one notify message. */
#define TUTTI_NOTIFY_MAX 512

/* At most this many descriptors from arm. */
#define TUTTI_ARM_MAX 8

/* Room for kinds of operation: new ones fill it up and move nothing. */
#define TUTTI_KINDS_MOST 32

typedef struct tutti_backend {
    uint32_t abi;
    uint32_t size;
    const char *name;    /* [a-z0-9_]{1,32}, as in libtutti_NAME.so */
    const char *version; /* of the plug-in and of the library under it, for people */
    size_t group_bytes;  /* the core allocates this much, zeroed and aligned to 64, for each group's state */
    uint32_t devices;    /* bit per tutti_device_type it takes tensors of: 1u << TUTTI_CPU */

    /* Can it work on this machine (a driver, a device, an interface)?  TUTTI_OK, or a status with the sentence in
     * error.  May block shortly.  Optional: then yes. */
    int (*probe)(const tutti_host *host);

    /* Makes the state of a group.  All members call it, once all have loaded the plug-in and probe has said yes on all;
     * it may talk to them through info->store, and may block, bounded by info->timeout_ms.  After an error the core
     * calls close on the same state.  Mandatory. */
    int (*open)(void *group, const tutti_group_info *info, const tutti_host *host);

    /* Gives everything back.  Also after a failed open, and on a zeroed state.  Pending requests are dropped: no
     * complete() after it, and their memory is not touched any more.  May block up to 1 s.  Mandatory. */
    void (*close)(void *group);

    /* The native door.  op is gone after the call; the tensors and splits that it points at stay as long as the request
     * is pending.  request carries nothing but flags, priv, owner and the operation's fingerprint, by which the
     * backend may find that ranks disagree: then it completes the request with MISMATCH, source and found_fingerprint
     * set.  Each entry is optional. */
    int (*native[TUTTI_KINDS_MOST])(void *group, const tutti_op *op, tutti_request *request);

    /* The point-to-point door: both, or neither.  send may answer DONE once data may be reused.  Messages of one pair,
     * group and tag arrive in order; sends never wait for each other's receives across tags. */
    int (*send)(void *group, tutti_request *request);
    int (*recv)(void *group, tutti_request *request);

    /* A receive that reduces what comes: data = addend op received, of messages of up to recv_reduce_most bytes.
     * Optional. */
    int (*recv_reduce)(void *group, tutti_request *request);

    /* Moves things on without waiting; called for the family's first group.  More than 0: something happened.
     * Mandatory where any entry answers PENDING. */
    int (*progress)(void *group);

    /* Without this entry and without notify the core calls progress of an idle family every 20 ms, for notes.
     *
     * Before sleeping: fills at most TUTTI_ARM_MAX descriptors that will poll readable (POLLIN) when progress has
     * something to do, and returns how many; 0 means something is there already, do not sleep.  The core first polls
     * for 0.1 ms, then calls again before it sleeps for longer: what comes just while the first call looks need not
     * make a descriptor readable, if the second one finds it.  Called for the family's first group.  Optional: without
     * it the core sleeps in short naps. */
    int (*arm)(void *group, int *descriptors);

    /* Takes a pending request back: when it returns TUTTI_OK the memory is not touched any more and complete() will not
     * be called.  An error: too late or not possible, complete() will be called.  Optional. */
    int (*cancel)(void *group, tutti_request *request);

    /* Without this entry the core sends notes as messages of one size under a tag of its own (bit 62 alone is set), and
     * keeps a receive from TUTTI_ANY_SOURCE posted for them, or one for each peer where that is refused.
     *
     * Sends a few bytes to peer besides all ordering and matching, best effort, dropped where there is no connection.
     * They reach host->notified there.  A note for a group that has been closed there is answered with one of no bytes,
     * behind all that was sent for the group.  Optional. */
    int (*notify)(void *group, int32_t peer, const void *message, size_t bytes);

    /* What the selection of algorithms should assume: a small message's latency, a large one's rate, a good size for
     * pipelining.  0: unknown. */
    int64_t latency_ns;
    int64_t bytes_per_us;
    int64_t segment_bytes;

    /* Bits of tutti_backend_traits. */
    uint32_t traits;

    /* The group has failed: nothing more will be begun on it, what is pending will be taken back with cancel, then it
     * is closed.  Makes what is under way let go of its memory, also operations that were answered DONE and
     * are still in a device's queue.  May block up to 1 s.  Optional. */
    void (*abort)(void *group);

    /* Makes stream (as tutti_opts) wait for a pending request; the host goes on.  TUTTI_ERR_UNSUPPORTED: it cannot yet,
     * the core then waits for the request itself.  Optional. */
    int (*wait_stream)(void *group, tutti_request *request, void *stream);

    /* Memory on the group's device, aligned to 64 at least, that the backend can use best.  Freed with the
     * other one, before the group is closed; on CPU with any group of the family, and what was not freed by the end of
     * the family stays the program's.  On CPU alloc may answer UNSUPPORTED: the system's memory is as good.  Both may
     * block (a device may have to catch up).  Both, or neither. */
    int (*alloc)(void *group, size_t bytes, void **memory);
    int (*free)(void *group, void *memory);

    /* Between begin and end (false) the native operations that are begun may be started together, at the end at the
     * latest; the family's progress is not called in between.  An error at the end: the group has failed.
     * Optional. */
    int (*coalesce)(void *group, bool begin);

    /* Which host each rank of the group is on: fills world_size numbers, alike for ranks that share a host and no
     * others.  Every rank of the group is told the same numbers, since algorithms follow from them.  Called once, after
     * all ranks have opened, for the family's first group with this backend (others are parts of it); may talk through
     * info->store, and block as open may.  Optional: then all ranks are taken to be on one host. */
    int (*hosts)(void *group, int32_t *host);

    /* Tells people, in lines that end with \n, what it found on this machine (group NULL: libraries, devices, what
     * open would take), or what the group uses.  At most capacity bytes with the final zero; what does not fit is left
     * out.  May block shortly where group is NULL.  Optional. */
    int (*describe)(const tutti_host *host, void *group, char *text, size_t capacity);

    /* Operations on tensors of this backend's device that another one does on copies in host memory.  It is asked of
     * the plug-in that has the device's name ("cuda").  stage_open checks op's tensors and stream (INVALID_ARGUMENT
     * says which is wrong) and gives `bytes` of host memory, aligned to 64, that the device copies from and to at full
     * rate.  native[TUTTI_COPY] copies op->in[i] to op->out[i], of which one is in that memory; op->stream is the
     * stage.  Copies come after what op's stream held when the stage was opened, not after what it is given later, and
     * are complete when the data are there.  stage_close: no copy of it is begun any more; one that was cancelled may
     * still be under way.  Neither may block.  Both and native[TUTTI_COPY], or none. */
    int (*stage_open)(void *group, const tutti_op *op, size_t bytes, void **stage, void **memory);
    void (*stage_close)(void *group, void *stage);

    /* The process ends, and its program has not closed the group: says goodbye to the peers as close would.  Called for
     * the family's first group; other threads may still be in calls, so nothing is given back.  May block up
     * to 0.3 s.  Optional. */
    void (*leave)(void *group);

    /* All ranks of the group make groups of it (tutti_group_info.made_from), and this rank will be in none of them.
     * May block, bounded by the group's time.  Optional. */
    int (*abstain)(void *group);

    /* Which ranks of the group a pending request of native[] waits for: sets their entries in ranks, world_size of
     * them, all false before.  So that a wait can be explained and ranks that disagree be found.  Optional. */
    void (*awaits)(void *group, const tutti_request *request, bool *ranks);

    /* Whether peers answer without the kernel's help, as soon as they run: then a rank that shares its core with them
     * gives it to them a few times before it sleeps.  Asked once, for the family's first group.  Optional. */
    bool (*is_near)(void *group);

    /* How native[op->kind] would do op ("through cells in shared memory"), whose tensors are not looked at, or NULL
     * where it would answer UNSUPPORTED.  Optional: then it does all that it has an entry for. */
    const char *(*explain)(void *group, const tutti_op *op);

    /* Up to how many bytes recv_reduce is better than a receive and a reduction by the core, which lets at most four
     * messages wait in memory of its own.  0: always. */
    int64_t recv_reduce_most;

    /* The table to be used in place of this one, of the same name: for a plug-in that chooses between others, whose
     * table then needs no more than its name and this.  Asked once, when it has been loaded.  NULL: there is none, and
     * host->error says why.  Optional. */
    const struct tutti_backend *(*instead)(const tutti_host *host);

    /* Returns a rank that may not have received all that was sent to it and reported as complete, or -1 if there is
     * none: every other rank has what was sent to it, or is gone.  The first call says goodbye to all peers; the core
     * begins nothing after it.  Called for the family's first group before close and before leave, alternately with
     * progress, until it returns -1 or the time for delivery has passed.  Must not block.  Optional. */
    int32_t (*drain)(void *group);

    /* As notify, but certain: it makes a connection where there is none, and messages of one pair arrive, in order.  An
     * error: it cannot arrive (PEER_LOST); a peer that is found to be lost later is told with peer_lost.  Called for
     * the family's first group.  With it the ranks of a family agree on the groups that are made from it.  Optional. */
    int (*tell)(void *group, int32_t peer, const void *message, size_t bytes);

    /* A group is about to be made from a family; group is its first one with this backend.  ready: whether this rank
     * will be able to open it; called on all members before any of them opens.  offer: once all members are ready, on
     * one of them; fills TUTTI_OFFER_BYTES (zeroed), which all get in tutti_group_info.offer.  It may block shortly.
     * Either one's error is the error of making the group on all members.  Each is optional, and used where the family
     * has tell. */
    int (*ready)(void *group);
    int (*offer)(void *group, const tutti_group_info *info, uint8_t *offer);

    /* Frees memory of alloc, of `bytes` as it was asked for, after all groups of its family have been closed.  Called
     * from any thread.  Optional: without it such memory stays until the process ends. */
    void (*reclaim)(void *memory, size_t bytes);
} tutti_backend;

enum tutti_backend_traits {
    /* Native operations of a group take effect in the order in which they were begun, whatever memory they share:
     * the core begins each at once and in order of issue, and never holds one back for an earlier one. */
    TUTTI_BACKEND_ORDERED = 1,

    /* recv understands TUTTI_REQUEST_UP_TO, TUTTI_REQUEST_ANY_TAG and TUTTI_REQUEST_PEEK. */
    TUTTI_BACKEND_UNSIZED = 2,

    /* To open a group with a parent, a rank needs none of the others. */
    TUTTI_BACKEND_OPENS_ALONE = 4
};

#ifdef __cplusplus
}
#endif
#endif
