/* The state of group creations: what this rank knows of groups that are being made in a group tree. */
#ifndef CREATION_STATE_H
#define CREATION_STATE_H

#include <sys/queue.h>

#include "group/creation_wire.h"
#include "group/group_args.h"
#include "state/group_state.h"

enum creation_state {
    CREATION_EARLY,     /* a peer's message has arrived, but this rank has not called */
    CREATION_GATHERING, /* this rank leads and collects proposals */
    CREATION_PROPOSED,  /* this rank has sent its proposal */
    CREATION_DECIDED
};

/* A message that arrived before this rank called. */
struct creation_early {
    STAILQ_ENTRY(creation_early) link;
    int peer;
    struct creation_message message;
};

struct creation {
    TAILQ_ENTRY(creation) link; /* in the root's list */
    LIST_ENTRY(creation) chain; /* in the bucket of its key */
    struct tutti_group *root;
    uint64_t key, parent, number;
    enum creation_state state;
    struct tutti_group *group; /* NULL: this rank is not a member, or has freed the group */
    bool ended;                /* the group has been made, or never will be: see creation_end */
    bool known;                /* this rank has called, and `list` holds its list of members */
    struct creation_members list;
    int leader; /* global rank */
    int64_t begun_ns;
    int n_arrived;
    bool *arrived;                      /* on the leader, by group rank: true if the rank's proposal has arrived */
    char (*whereabouts)[CREATION_TEXT]; /* on the leader: the stragglers' answers; NULL if none was asked */
    struct tutti_work *waiter;          /* the work that the verdict ends */
    int status;                         /* status of the verdict */
    char text[CREATION_TEXT];
    uint32_t n_offers;
    uint8_t offer[CREATION_OFFERS][TUTTI_OFFER_BYTES];
    int32_t *choice;        /* split only: color and key of each rank; the caller's memory */
    uint32_t n_choices;     /* on a member: numbers received so far */
    struct group_args args; /* arguments of a pending group; names and parent outlive it */
    STAILQ_HEAD(, creation_early) early;
};
TAILQ_HEAD(creation_queue, creation);

enum { CREATION_BUCKETS = 64 };

struct creation_list {
    struct creation_queue creations; /* oldest first */
    LIST_HEAD(creation_bucket, creation) bucket[CREATION_BUCKETS];
    int n;
};

/* True if this group tree can send control messages: its first backend of CPU tensors has `tell`. */
bool creation_is_possible(const struct tutti_group *root);

/* creation_find returns the state of this key, or NULL.  creation_new makes one; it returns NULL if out of memory. */
struct creation *creation_find(struct tutti_group *root, uint64_t key);
struct creation *creation_new(struct tutti_group *root, uint64_t key);

/* Ends a split that has been decided.  Frees its state after a verdict of OK: then all ranks have called, so none will
 * ask about it.  Lock held. */
void creation_end_split(struct creation *creation);

/* True if the group is being made, or is pending. */
bool creation_is_under_way(const struct tutti_group *group);

/* Returns the offer of the i-th backend that has one, or NULL. */
const uint8_t *creation_offer(const struct tutti_group *group, int i);

/* Returns the arguments of a pending group. */
const struct group_args *creation_args(const struct tutti_group *group);

/* creation_forget drops the references to a group that is about to be freed.  creation_free_all frees all state.  Lock
 * held. */
void creation_forget(struct tutti_group *group);
void creation_free_all(struct tutti_group *root);

#endif
