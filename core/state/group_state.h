/* The state of a process group, shared by the layers from the progress engine up.  Data alone: group/ has the
 * functions. */
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
#include "plugin/backend_spec.h"

struct coll_hosts;
struct control_channel;
struct engine;
struct group_use;
struct health;
struct creation;
struct creation_list;
struct plan_cache;
struct shared_transport;
struct stragglers;
struct tutti_work;
TAILQ_HEAD(work_queue, tutti_work);

enum { GROUP_ENTRIES = 3, GROUP_NAME_MAX = 64 };

/* A backend that serves this group's tensors of one device. */
struct backend_entry {
    const tutti_backend *backend;
    void *state;
    void *first;              /* state of the tree's first group with this backend; progress is called for it */
    tutti_store *store;       /* a prefix of the group's */
    bool fallback_logged;     /* that operations go to the next entry: logged once */
    struct coll_hosts *hosts; /* which ranks share a host, as the backend reports it; NULL: unknown */
    struct tuning tuned;
    tutti_path_row *path_rows; /* what the backend was given with `choose` */
};

/* The last call of a kind: see call_memo.h. */
struct call_memo {
    uint64_t call; /* see tutti_op; 0: there was none */
    uint64_t fingerprint;
    /* as the caller gave it */
    int32_t given_root;
    bool group_rank;
    tutti_reduce_op reduce_op;
    tutti_tensor in, out; /* of the sides that the kind uses */
    bool any_memory;      /* a call with other memory repeats it, too */
    /* as check_op left it */
    int32_t root, n_in, n_out;
    tutti_dtype dtype;
};

/* The fields of each operation come first: after the copy of a large one little of the struct is left in the caches. */
struct tutti_group {
    struct engine *engine;
    struct work_queue works; /* not ended, in order of issue (group_link) */
    uint64_t sequence;       /* of the last collective issued */
    uint64_t past;           /* a hash of all of them: see fingerprint_with_past */
    int64_t timeout_ms;
    struct plan_cache *cache;
    struct health *health;
    struct stragglers *stragglers;   /* owned by health */
    struct control_channel *control; /* carries control messages if no backend has notify; else NULL */
    int rank, size;                  /* -1, -1: not a member */
    char *lost_text; /* a member was lost while nothing waited for it: the next operation fails with this */
    int failed;      /* status of the first failure, or 0 */
    bool shut;       /* its backends are closed; only the handle is left */
    int n_entries[2];
    struct backend_entry stager; /* copies CUDA tensors if one of their entries takes only CPU tensors; else not open */
    struct backend_entry entries[2][GROUP_ENTRIES]; /* by device: CPU, CUDA */
    struct call_memo checked[TUTTI_KIND_COUNT];     /* the last call of each kind */
    uint64_t calls;                                 /* calls that did not repeat the previous one */

    atomic_int references;      /* the handle, calls that wait, threads that coalesce on it */
    struct tutti_group *root;   /* the tree's first group; itself for that one */
    struct tutti_group *origin; /* the group made with a store that this one descends from, and is closed with */
    struct shared_transport *transport; /* of such a group: its root, shared with other groups; or NULL */
    bool is_shared;                     /* of a root: it has no handle, and groups made with a store share it */
    TAILQ_ENTRY(tutti_group) tree_link;
    TAILQ_HEAD(group_list, tutti_group) tree; /* the root's: all groups of the tree, itself included */
    char name[GROUP_NAME_MAX];
    char backend_text[SPEC_TEXT_MAX];
    struct backend_spec names;
    uint64_t id;
    int *global_ranks;
    bool *lost;    /* of the root: global ranks to which the connection has ended, from either side */
    int *local_of; /* global rank -> rank in this group, -1; world-size entries */
    int world;     /* of the root */
    int local_rank, local_world_size, node_rank; /* from the launcher; -1 if unknown */
    int64_t open_timeout_ms;                     /* of each wait for the other ranks while the group is made */
    struct liveness_list processes;              /* of the root */
    int64_t turn;                                /* of the root: number of groups opened over its store before */
    tutti_store *store; /* a prefix, owned; NULL for non-members, and for subgroups after their world */
    tutti_device device;
    const char *algorithm;   /* TUTTI_ALGO, or NULL; the root's counts, unless the group has its own */
    char *own_algorithm;     /* tutti_group_opts.algorithm */
    struct coll_path *paths; /* of its backends: see coll_override */
    int limit_ranks;         /* passed to limits_raise; 0: not called */
    char *agreed;            /* the root's: the algorithms of the first rank that published them */
    char *tuning;            /* the root's: the text of rank 0's TUTTI_TUNING file, or NULL */

    uint64_t n_subgroups;            /* made from this one, for their ids */
    uint64_t called;                 /* number of the latest one that this rank has called for, as a member or not */
    struct creation *creation;       /* while the members agree on it: see creation.h */
    atomic_bool pending;             /* it must be settled before its first use */
    bool settling;                   /* a thread is settling it */
    struct creation_list *creations; /* the root's */
    int n_early;                     /* the root's: kept messages about groups that this rank has not called for */
    uint64_t shrinks;                /* number of shrink_group calls */
    uint64_t last_split;             /* the latest one whose choices are in the store; 0: none */
    struct group_use *uses;          /* lists of members of groups made with members_only */
    struct op_span reach;            /* covers the memory of the collectives in `works` */
    char *failed_text;
    uint64_t failed_sequence; /* the first collective that failed */
    bool failure_returned;    /* a collective of this rank has returned the failure, or none has to */
    struct rank_set given_up; /* after a TIMEOUT: the ranks that were given up */
    int reported_status; /* status of a failure reported by a peer, held back while earlier works may still complete */
    char *reported_text;
    uint64_t reported_sequence;
    int64_t reported_ns;
    bool aborted;                        /* its backends were aborted */
    bool in_collective;                  /* while a collective's call checks whether the group is usable */
    bool rank0_hosts_store;              /* of the root: the store ends with rank 0's process */
    struct failure_broadcast *broadcast; /* while its failure is sent to all members */
};

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

/* Returns the rank in the group of a global rank, or -1 if it is not a member or this process is none. */
static inline int group_rank_of(const struct tutti_group *group, int global_rank)
{
    bool known = group->rank >= 0 && global_rank >= 0 && global_rank < group->world;
    return known ? group->local_of[global_rank] : -1;
}

static inline int group_device_index(tutti_device device)
{
    return device.type == TUTTI_CPU ? 0 : device.type == TUTTI_CUDA ? 1 : -1;
}

/* Returns 0 for CPU, 1 for CUDA: of the operation's tensors, or of the group if it has none. */
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
