/* Shared by making.c, making_hear.c. */
#ifndef MAKING_IMPL_H
#define MAKING_IMPL_H

#include <sys/queue.h>

#include "group/making.h"
#include "group/making_wire.h"

enum making_state {
    MAKING_EARLY,     /* a peer's message has come, this rank has not called */
    MAKING_GATHERING, /* this rank leads and collects cards */
    MAKING_HANDED,    /* this rank has sent its card */
    MAKING_DECIDED
};

/* A message that came before this rank called. */
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
    struct tutti_group *group; /* NULL: this rank is no member, or has freed it */
    bool known;                /* this rank has called, and `list` is its list */
    struct making_list list;
    int leader; /* global rank */
    int64_t begun_ns;
    int n_came;
    bool *came;                 /* on the leader, by rank of the group: its card is here */
    char (*place)[MAKING_TEXT]; /* on the leader: what stragglers have answered; NULL: none was asked */
    struct tutti_work *waiter;  /* marked ended by the verdict */
    int status;                 /* the verdict */
    char text[MAKING_TEXT];
    uint32_t n_offers;
    uint8_t offer[MAKING_OFFERS][TUTTI_OFFER_BYTES];
    int32_t *choice;        /* of a split: color and key of each rank */
    uint32_t n_choices;     /* on a member: numbers received so far */
    struct group_args args; /* of a pending group; names and parent outlive it */
    STAILQ_HEAD(, making_early) early;
};
TAILQ_HEAD(making_list_head, making);

/* making.c */
struct making *making_find(struct tutti_group *root, uint64_t key);
struct making *making_new(struct tutti_group *root, uint64_t key);
/* Sends a message to a global rank.  Returns TUTTI_OK or PEER_LOST. */
int making_tell(struct tutti_group *root, int peer, const struct making_message *message);
void making_answer(struct tutti_group *root, int peer, const struct making_message *to, int status, const char *text);
/* Sets the verdict of this rank.  If `tell` is set, a leader sends it to all members, a member to its leader. */
void making_decide(struct making *making, int status, const char *text, bool tell);
/* Decides TIMEOUT and names the stragglers. */
void making_decide_late(struct making *making);
/* Fails a group on all members after a verdict of OK. */
void making_fail_made(struct making *making, int status, const char *text);
int making_send_card(struct making *making, int peer);

/* making_hear.c */
void making_hear(struct tutti_group *root, int peer, const struct making_message *message);
/* Handles the messages that came before this rank called. */
void making_hear_early(struct making *making);

#endif
