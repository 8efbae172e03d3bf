/* The state of a process group, shared by the layers from the progress engine up.  It is data alone: the functions are
 * in group/. */
#ifndef GROUP_STATE_H
#define GROUP_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

#include "bootstrap/liveness.h"
#include "coll/tuning.h"
#include "op/control_message.h"
#include "op/op.h"
#include "op/record.h"
#include "plugin/backend_spec.h"
#include "state/work_state.h"

struct coll_hosts;
struct control_channel;
struct engine;
struct generation;
struct group_use;
struct health;
struct loss;
struct creation;
struct creation_list;
struct plan_cache;
struct shared_transport;
struct stragglers;
struct tool_group;
TAILQ_HEAD(work_queue, tutti_work);

enum { GROUP_ENTRIES = 3, GROUP_NAME_MAX = 64 };

/* A backend that serves this group's tensors of one device. */
struct backend_entry {
    const tutti_backend *backend;
    void *state;
    void *first;              /* state of the tree's first group with this backend; progress is called with it */
    tutti_store *store;       /* prefix store within the group's */
    bool fallback_logged;     /* the log has a line that operations fall back to the next entry */
    struct coll_hosts *hosts; /* which ranks share a host, as the backend reports it; NULL: unknown */
    tutti_links links;        /* how fast its messages are, on all ranks alike; zero: unknown */
    struct tuning tuned;
    tutti_path_row *path_rows; /* the rows that the backend got with `choose` */
};

/* The last call of one kind: see call_memo.h. */
struct call_memo {
    uint64_t call, form; /* numbers of the call (tutti_op); 0: none yet */
    uint64_t fingerprint;
    /* as given by the caller */
    int32_t given_root;
    bool group_rank;
    tutti_reduce_op reduce_op;
    tutti_tensor in, out; /* only the sides that the kind uses */
    bool list;
    tutti_tensor *listed; /* of a call with lists: its tensors, those of `in` first */
    bool any_memory;      /* its check holds for other memory, too */
    /* as set by check_op */
    int32_t root, n_in, n_out;
    tutti_dtype dtype;
    const struct backend_entry *entry; /* see dispatch_entry */
};

/* What the last sends, or the last receives, have in common: see message_memo.h. */
struct message_memo {
    const struct backend_entry *entry; /* NULL: nothing yet */
    tutti_tensor tensor;
    int32_t given; /* the last peer, as the caller named it */
    bool group_rank;
    bool at_once;           /* the backend is first asked for what can be done at once: see message.c */
    struct record record;   /* without what is each message's own */
    struct tutti_work work; /* likewise; the last peer is that of its op and request */
    tutti_request request;  /* for what can be done at once */
};

/* The fields that every operation uses come first: a large copy leaves little of the struct in the caches.
 *
 * A field marked `root:` is used only in the root, the first group of a tree. */
struct tutti_group {
    struct engine *engine;
    struct work_queue works; /* works that have not ended, in order of issue (group_link) */
    uint64_t sequence;       /* sequence number of the last collective issued */
    uint64_t past;           /* hash of all collectives issued: see fingerprint_with_past */
    int64_t timeout_ms;
    struct record_ring record, record_messages; /* of collectives, and of operations without a sequence number */
    struct plan_cache *cache;
    tutti_stats *stats;      /* its counters; the root's are the engine's */
    struct tool_group *tool; /* NULL: no tool sees this group */
    struct health *health;
    struct stragglers *stragglers;   /* owned by health */
    struct control_channel *control; /* carries control messages if no backend has notify; else NULL */
    int rank, size;                  /* both -1 for a non-member */
    char *lost_text; /* error of the next operation, if a member was lost while no operation involved it */
    int failed;      /* status of the first failure, or 0 */
    bool shut;       /* its backends are closed; only the handle is left */
    int n_entries[2];
    struct backend_entry stager; /* copies CUDA tensors if one of their entries takes only CPU tensors; else not open */
    struct backend_entry entries[2][GROUP_ENTRIES]; /* by device: CPU, CUDA */
    struct call_memo call_memos[TUTTI_KIND_COUNT];  /* the last call of each kind */
    struct message_memo messages[2];                /* of receives and of sends */
    uint64_t calls;                                 /* calls that did not repeat the previous one */

    atomic_int references;              /* the handle, waiting calls, and threads that coalesce on it */
    struct tutti_group *root;           /* the tree's first group, which is its own root */
    struct tutti_group *origin;         /* ancestor that was made with a store; this group is closed with it */
    struct shared_transport *transport; /* origin only: its root, shared with other groups; or NULL */
    uint64_t tool_tree;                 /* root: tutti_tool_group.tree; 0: none yet */
    bool is_shared;                     /* root: it has no handle, and groups made with a store share it */
    TAILQ_ENTRY(tutti_group) tree_link;
    TAILQ_HEAD(group_list, tutti_group) tree; /* root: all groups of the tree, the root included */
    char name[GROUP_NAME_MAX];
    char backend_text[SPEC_TEXT_MAX];
    struct backend_spec names;
    uint64_t id;
    int *global_ranks;
    bool *lost;                                  /* root: global ranks whose connection has ended, from either side */
    struct loss *losses;                         /* root: why they have ended */
    int *local_of;                               /* global rank -> rank in this group or -1; world-size entries */
    int world;                                   /* root: world size */
    int local_rank, local_world_size, node_rank; /* from the launcher; -1 if unknown */
    int64_t open_timeout_ms;                     /* for each wait for other ranks while the group is made */
    struct liveness_list processes;              /* root */
    int64_t turn;                                /* root: number of groups opened over its store before this one */
    tutti_store *store; /* prefix store, owned; NULL for non-members, and for subgroups once their world is closed */
    tutti_device device;
    const char *algorithm;   /* TUTTI_ALGO, or NULL; the root's applies, unless own_algorithm is set */
    char *own_algorithm;     /* tutti_group_opts.algorithm */
    struct coll_path *paths; /* the paths of its backends: see coll_override */
    int limit_ranks;         /* number of ranks passed to limits_raise; 0: not called */
    char *agreed;            /* root: the algorithms of the first rank that published them */
    char *tuning;            /* root: the text of rank 0's TUTTI_TUNING file, or NULL */

    uint64_t n_subgroups;            /* number of groups made from this one, for their ids */
    uint64_t called;                 /* number of the latest subgroup that this rank has called for, member or not */
    struct creation *creation;       /* how the members agree on the group: see creation.h; NULL: they need not */
    atomic_bool pending;             /* the creation must be settled before the first use */
    bool settling;                   /* a thread is settling it */
    struct creation_list *creations; /* root */
    int n_early;                     /* root: number of kept messages about groups that this rank has not called for */
    uint64_t shrinks;                /* number of shrink_group calls */
    uint64_t last_split;             /* number of the latest split whose choices are in the store; 0: none */
    struct group_use *uses;          /* lists of members of groups made with members_only */
    int n_enlisted;                  /* collectives in `works` */
    struct op_span reach;            /* covers their memory */
    char *failed_text;
    uint64_t failed_sequence; /* sequence number of the first collective that failed */
    bool failure_returned;    /* a collective of this rank has returned the failure, or none has to return it */
    struct rank_set given_up; /* after a TIMEOUT: the ranks that were given up */
    int reported_status; /* status of a failure reported by a peer, held back while earlier works may still complete */
    char *reported_text;
    uint64_t reported_sequence;
    int64_t reported_ns;
    bool aborted;                        /* its backends have been aborted */
    bool in_collective;                  /* set while the call of a collective checks whether the group is usable */
    bool rank0_hosts_store;              /* root: the store ends with rank 0's process */
    struct generation *generation;       /* made by init, create_group or regroup: its members; else NULL */
    bool wanted;                         /* ranks wait to regroup with it */
    int64_t wanted_again_ns;             /* time of the next look whether any do */
    struct failure_broadcast *broadcast; /* set while the failure is sent to all members */
    LIST_ENTRY(tutti_group) recorded;    /* the groups of this process: see recorder.c */
    atomic_bool is_recorded;             /* written under the recorder's lock */
    char *recorded_waits;                /* the operations under way when the group failed, as lines of the record */
};

/* Returns the ring of operations with this sequence number. */
static inline struct record_ring *group_record(struct tutti_group *group, uint64_t sequence)
{
    return sequence != 0 ? &group->record : &group->record_messages;
}

/* Returns a timeout in milliseconds: the given one, or the group's. */
static inline int64_t group_timeout(const struct tutti_group *group, int64_t given)
{
    if (given == TUTTI_NOW) return 0;
    return given > 0 ? given : group->timeout_ms;
}

/* True if group_check_usable and group_check_collective accept a group that group_for_call returned. */
static inline bool group_is_usable(const struct tutti_group *group)
{
    return !group->shut && group->failed == TUTTI_OK && group->lost_text == NULL;
}

/* Returns the rank in the group of a global rank, or -1 if either that rank or this process is a non-member. */
static inline int group_rank_of(const struct tutti_group *group, int global_rank)
{
    bool known = group->rank >= 0 && global_rank >= 0 && global_rank < group->world;
    return known ? group->local_of[global_rank] : -1;
}

static inline int group_device_index(tutti_device device)
{
    return device.type == TUTTI_CPU ? 0 : device.type == TUTTI_CUDA ? 1 : -1;
}

/* Returns the device index of the operation's tensors, or the group's if it has none: 0 for CPU, 1 for CUDA. */
static inline int group_device_of(const struct tutti_group *group, const tutti_op *op)
{
    return group_device_index(op->n_in > 0 ? op->in[0].device : op->n_out > 0 ? op->out[0].device : group->device);
}

/* True if the backend takes tensors of the device: 0 for CPU, 1 for CUDA. */
static inline bool group_takes_device(const tutti_backend *backend, int device)
{
    return backend->devices >> (device == 0 ? TUTTI_CPU : TUTTI_CUDA) & 1;
}

#endif
