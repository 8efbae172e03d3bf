/* A process group: who is in it, which backends serve which device, its order of operations, and whether it failed. */
#ifndef GROUP_H
#define GROUP_H

#include <stdatomic.h>
#include <sys/queue.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

#include "alive.h"
#include "checked.h"
#include "engine.h"
#include "names.h"
#include "note.h"
#include "op.h"
#include "tuning.h"

struct cache;
struct health;
struct making;
struct making_family;

enum { GROUP_DOORS = 3, GROUP_NAME_MAX = 64 };

/* One backend that serves this group's tensors of one device. */
struct group_door {
    const tutti_backend *backend;
    void *state;
    void *first;              /* state of the family's first group with this backend, which progress is called for */
    tutti_store *store;       /* its part of the group's */
    bool told;                /* that operations fall through to the next one (said once) */
    struct coll_hosts *hosts; /* who shares a host, as the backend says; NULL: it does not */
    struct tuning tuned;
};

/* What each operation looks at comes first: after a large one's copy little of it is left in the caches. */
struct tutti_group {
    struct engine *engine;
    struct work_queue works; /* not ended, in order of issue (group_link) */
    uint64_t sequence;       /* of the last collective issued */
    uint64_t past;           /* a trace of all of them: see fingerprint_with_past */
    int64_t timeout_ms;
    struct cache *cache;
    struct health *health;
    struct control *control; /* carries notes where no backend does; or NULL */
    int rank, size;          /* -1, -1: not a member */
    char *gone_text;         /* a member is gone although nothing waited for it: the next operation fails with this */
    int failed;              /* status of the first failure, or 0 */
    bool shut;               /* its backends are closed; only the handle is left */
    int n_doors[2];
    struct group_door stager; /* copies CUDA tensors where one of their doors takes CPU tensors alone; else not open */
    struct group_door doors[2][GROUP_DOORS];  /* by device: CPU, CUDA */
    struct checked checked[TUTTI_KIND_COUNT]; /* the last call of each kind */
    uint64_t calls;                           /* that did not repeat the one before them */

    atomic_int references;    /* the handle, calls that wait, threads that coalesce on it */
    struct tutti_group *root; /* the family's first group; itself for that one */
    TAILQ_ENTRY(tutti_group) family_link;
    TAILQ_HEAD(group_list, tutti_group) family; /* the root's: all groups of the family, itself included */
    char name[GROUP_NAME_MAX];
    char backend_text[NAMES_TEXT_MAX];
    struct names names;
    uint64_t id;
    int *global_ranks;
    bool *lost;    /* of the root: global ranks to which the connection has ended, whoever ended it */
    int *local_of; /* global rank -> rank in this group, -1; world-size entries */
    int world;     /* of the root */
    int local_rank, local_world_size, node_rank; /* as the launcher says; -1 where it does not */
    int64_t open_timeout_ms;                     /* of each wait for the other ranks while the group is made */
    struct alive_list processes;                 /* of the root */
    int64_t turn;                                /* of the root: how many groups were opened over its store before */
    tutti_store *store; /* a prefix, owned; NULL for non-members, and for subgroups after their world */
    tutti_device device;
    const char *algorithm; /* TUTTI_ALGO, or NULL; the root's counts */
    int limit_ranks;       /* as limits_raise was told; 0: it was not */
    char *agreed;          /* the root's: what the first rank to come said of it */
    char *tuning;          /* the root's: what rank 0's TUTTI_TUNING file says; NULL: nothing */

    uint64_t children;     /* made from this one, for their ids */
    uint64_t called;       /* the number of the latest one that this rank has begun to make, or abstained from */
    struct making *making; /* while the members agree on it: see making.h */
    atomic_bool pending;   /* it has to be settled before its first use */
    bool settling;         /* by a thread, just now */
    struct making_family *makings; /* the root's */
    int n_early;                   /* the root's: messages of groups that this rank has not begun to make */
    uint64_t shrinks;              /* how often it was */
    uint64_t last_split;           /* the latest whose choices are in the store; 0: none */
    struct group_use *uses;        /* lists of members that groups were made of by the members alone */
    struct op_span reach;          /* of the memory of the collectives among them, at least */
    char *failed_text;
    uint64_t failed_sequence;         /* the first collective that did not end well */
    bool failed_met;                  /* a collective of this rank has ended with it, or none needs to */
    struct note_ranks failed_missing; /* TIMEOUT: which ranks were given up */
    int told; /* status of a peer's failure that is held back for works that are earlier than it */
    char *told_text;
    uint64_t told_sequence;
    int64_t told_ns;
    bool aborted;           /* its backends were told that it failed */
    bool in_collective;     /* while a call to a collective checks whether the group is usable */
    bool rank0_hosts_store; /* of the root: the store ends with rank 0's process */
    struct spread *spread;  /* while its failure is sent to all members */
};

/* Which backends by device, parsed; ranks; store: what a new group is made from. */
struct group_args {
    const struct names *names;
    struct tutti_group *parent; /* NULL: a family of its own */
    struct tutti_group *whole; /* the group whose ranks all make groups of it now, by color; NULL: members alone call */
    int color;
    tutti_store *store;               /* family of its own: borrowed; the group makes a prefix of it */
    const struct engine_hooks *hooks; /* family of its own: for its engine */
    uint64_t id;
    uint64_t key;    /* with a parent: what tells the making apart, which may be alike for lists that differ */
    uint64_t number; /* among those that all of the parent make; 0: another kind */
    bool survivors;  /* of a parent that has failed, or is about to */
    bool may_pend;   /* its making need not end before the first use */
    bool splits;     /* nothing is made: the ranks exchange color and split_key */
    int split_key;
    const char *name;
    int rank, size;
    const int *global_ranks;                     /* NULL: 0 .. size - 1 */
    int local_rank, local_world_size, node_rank; /* -1 where the launcher does not say */
    int64_t timeout_ms;
    int64_t open_timeout_ms; /* of each wait for the other ranks while the group is made; 0: as timeout_ms */
    tutti_device device;
    bool high_priority;
};

int group_open(const struct group_args *args, struct tutti_group **group);

/* Waits until a group that is pending is made; if it cannot be made, it has failed. */
void group_settle(struct tutti_group *group);

/* A handle for somebody who is not in the group. */
int group_open_outsider(struct tutti_group *parent, const char *name, struct tutti_group **group);

/* How often members' lists of this hash were used for a group by the members alone, this time included. */
uint64_t group_count_use(struct tutti_group *parent, uint64_t hash);

/* Ends what is under way (waiting up to 2 s), gives what was sent delivery_ms to arrive (TUTTI_DEFAULT_TIMEOUT: the
 * group's timeout), closes the backends, gives the handle's reference back. */
void group_close(struct tutti_group *group, int64_t delivery_ms);

/* Another thread may destroy the group meanwhile: until group_drop it is there, though shut.  drop without the lock. */
void group_hold(struct tutti_group *group);
void group_drop(struct tutti_group *group);

/* Ends all of the group's operations with status and text, and lets no further one begin.  With tell, the other ranks
 * are told.  Under the lock. */
void group_fail(struct tutti_group *group, int status, const char *text, bool tell);

/* Fails all groups of the family, because the program has closed the engine's descriptors.  Under the lock. */
void group_disowned(struct tutti_group *first);

/* A peer says that the group failed; sequence is the first collective that did not end well there.  Those before it may
 * still end well here, as they did there: they have a moment for it. */
void group_told(struct tutti_group *group, int status, const char *text, uint64_t sequence);

/* Takes in what the groups of the family were told, where its time has come. */
void group_take_told(struct tutti_group *first);

/* The host service behind tutti_host.peer_lost; core is the family's first group. */
void group_peer_lost(void *core, int32_t peer, bool left, const char *why);

/* The host service behind tutti_host.failed. */
void group_failed(void *core, int status, const char *why);

/* Whether this process may use the group, failed or not; else why not, as an error. */
int group_check_open(const struct tutti_group *group);

/* A timeout in milliseconds: the group's where none is given. */
static inline int64_t group_timeout(const struct tutti_group *group, int64_t given)
{
    if (given == TUTTI_NOW) return 0;
    return given > 0 ? given : group->timeout_ms;
}

/* Whether the next two have nothing to say of a group that group_for_call gave. */
static inline bool group_is_usable(const struct tutti_group *group)
{
    return !group->shut && group->failed == TUTTI_OK && group->gone_text == NULL;
}

/* Why the group takes no operation, as an error; TUTTI_OK if it does.  doing: "all_reduce", for the sentence. */
int group_check_usable(struct tutti_group *group, const char *doing);

/* The same for a collective.  What is true for every rank, that calls differ or a member is gone, is what the first
 * call after it fails with, also where the peers told before this rank came to it; those after that are ABORTED. */
int group_check_collective(struct tutti_group *group, const char *doing);

/* Makes group, or none, the default group.  Returns the one before. */
struct tutti_group *group_set_default(struct tutti_group *group);

/* The default group where group is NULL; NULL, with the error text set, if there is none. */
struct tutti_group *group_or_default(const struct tutti_group *group);

/* The same for a call that only asks: no error text. */
const struct tutti_group *group_to_ask(const struct tutti_group *group);

/* As group_or_default, for a call that is to do something: NULL, with the error text set, also in a forked child. There
 * the group's lock may be held by a thread that is not there, and its memory is shared with the parent's peers. */
struct tutti_group *group_for_call(const struct tutti_group *group);

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

/* 0 for CPU, 1 for CUDA: the group's where the operation has no tensors. */
static inline int group_device_of(const struct tutti_group *group, const tutti_op *op)
{
    return group_device_index(op->n_in > 0 ? op->in[0].device : op->n_out > 0 ? op->out[0].device : group->device);
}

/* A group's device as its maker gives it; type 0: none given. */
int group_check_device(const char *doing, tutti_device device);

/* Whether the backend takes tensors of the device: 0 for CPU, 1 for CUDA. */
static inline bool group_takes_device(const tutti_backend *backend, int device)
{
    return backend->devices >> (device == 0 ? TUTTI_CPU : TUTTI_CUDA) & 1;
}

#endif
