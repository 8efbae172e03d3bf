/* Process groups: how they are made, fail and end. */
#ifndef GROUP_H
#define GROUP_H

#include "progress/engine.h"
#include "state/group_state.h"

/* Which backends by device, parsed; ranks; store: what a new group is made from. */
struct group_args {
    const struct backend_spec *names;
    struct tutti_group *parent; /* NULL: a family of its own */
    struct tutti_group *whole; /* the group whose ranks all make groups of it now, by color; NULL: members alone call */
    int color;
    tutti_store *store; /* of a group made with a store: borrowed; the group makes a prefix of it */
    bool is_shared;     /* family of its own: it is for groups made with a store to share, and gets no handle */
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
    const char *algorithm; /* NULL: the root's */
};

int group_open(const struct group_args *args, struct tutti_group **group);

/* Waits until a group that is pending is made; if it cannot be made, it has failed. */
void group_settle(struct tutti_group *group);

/* A handle for somebody who is not in the group. */
int group_open_non_member(struct tutti_group *parent, const char *name, struct tutti_group **group);

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
void group_fail_disowned(struct tutti_group *first);

/* Fails all groups of the family, because a control message was lost for want of memory.  Under the lock. */
void group_fail_starved(struct tutti_group *first);

/* A peer says that the group failed; sequence is the first collective that did not end well there.  Those before it may
 * still end well here, as they did there: they have a moment for it. */
void group_fail_report(struct tutti_group *group, int status, const char *text, uint64_t sequence);

/* Takes in what the groups of the family were told, where its time has come. */
void group_fail_apply_reported(struct tutti_group *first);

/* The host service behind tutti_host.peer_lost; core is the family's first group. */
void backend_events_peer_lost(void *core, int32_t peer, bool left, const char *why);

/* The host service behind tutti_host.failed. */
void backend_events_failed(void *core, int status, const char *why);

/* Whether this process may use the group, failed or not; else why not, as an error. */
int group_check_open(const struct tutti_group *group);

/* Why the group takes no operation, as an error; TUTTI_OK if it does.  doing: "all_reduce", for the sentence. */
int group_check_usable(struct tutti_group *group, const char *doing);

/* The same for a collective.  What is true for every rank, that calls differ or a member is gone, is what the first
 * call after it fails with, also where the peers told before this rank came to it; those after that are ABORTED. */
int group_check_collective(struct tutti_group *group, const char *doing);

/* Makes group, or none, the default group.  Returns the one before. */
struct tutti_group *default_group_set(struct tutti_group *group);

/* The default group where group is NULL; NULL, with the error text set, if there is none. */
struct tutti_group *default_group_or(const struct tutti_group *group);

/* The same for a call that only asks: no error text. */
const struct tutti_group *default_group_peek(const struct tutti_group *group);

/* As default_group_or, for a call that is to do something: NULL, with the error text set, also in a forked child. There
 * the group's lock may be held by a thread that is not there, and its memory is shared with the parent's peers. */
struct tutti_group *group_for_call(const struct tutti_group *group);

/* A group's device as its maker gives it; type 0: none given. */
int group_check_device(const char *doing, tutti_device device);

#endif
