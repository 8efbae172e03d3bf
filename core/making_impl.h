/* Shared by making.c, making_hear.c. */
#ifndef MAKING_IMPL_H
#define MAKING_IMPL_H

#include <sys/queue.h>

#include "making.h"
#include "making_wire.h"

enum making_state {
    MAKING_EARLY,     /* others have begun, this rank has not */
    MAKING_GATHERING, /* it leads */
    MAKING_HANDED,    /* its card is with the leader */
    MAKING_DECIDED
};

/* What came before this rank called. */
struct making_early {
    STAILQ_ENTRY(making_early) link;
    int peer;
    struct making_message message;
};

struct making {
    TAILQ_ENTRY(making) link; /* of the root's */
    struct tutti_group *root;
    uint64_t key, parent, number;
    enum making_state state;
    struct tutti_group *group; /* NULL: this rank is not in it, or has freed it */
    bool known;                /* this rank has called: list is what it said */
    struct making_list list;
    int leader; /* global rank */
    int64_t begun_ns;
    int n_came;
    bool *came;                 /* the leader's: by rank of the group */
    char (*place)[MAKING_TEXT]; /* the leader's: what those have answered that have not come; NULL: nobody was asked */
    struct tutti_work *waiter;  /* ends with the verdict */
    int status;                 /* the verdict */
    char text[MAKING_TEXT];
    uint32_t n_offers;
    uint8_t offer[MAKING_OFFERS][TUTTI_OFFER_BYTES];
    struct group_args args; /* of a group that is pending; names and parent outlive it */
    STAILQ_HEAD(, making_early) early;
};
TAILQ_HEAD(making_list_head, making);

/* making.c */
struct making *making_find(struct tutti_group *root, uint64_t key);
struct making *making_new(struct tutti_group *root, uint64_t key);
/* Says it to a global rank: TUTTI_OK, or PEER_LOST. */
int making_tell(struct tutti_group *root, int peer, const struct making_message *message);
void making_answer(struct tutti_group *root, int peer, const struct making_message *to, int status, const char *text);
/* The verdict, as far as this rank is concerned.  tell: the leader tells all members, a member its leader. */
void making_decide(struct making *making, int status, const char *text, bool tell);
/* Time has run out. */
void making_decide_late(struct making *making);
/* All were told that it is made, and now it fails on all of them. */
void making_fail_made(struct making *making, int status, const char *text);
int making_send_card(struct making *making, int peer);

/* making_hear.c */
void making_hear(struct tutti_group *root, int peer, const struct making_message *message);
/* What came early is heard now. */
void making_hear_early(struct making *making);

#endif
