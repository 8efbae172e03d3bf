/* Shared by making.c, creation_receive.c. */
#ifndef CREATION_STATE_H
#define CREATION_STATE_H

#include <sys/queue.h>

#include "group/creation.h"
#include "group/creation_wire.h"

enum creation_state {
    CREATION_EARLY,     /* a peer's message has come, this rank has not called */
    CREATION_GATHERING, /* this rank leads and collects cards */
    CREATION_PROPOSED,  /* this rank has sent its card */
    CREATION_DECIDED
};

/* A message that came before this rank called. */
struct creation_early {
    STAILQ_ENTRY(creation_early) link;
    int peer;
    struct creation_message message;
};

struct creation {
    TAILQ_ENTRY(creation) link; /* of the root's */
    struct tutti_group *root;
    uint64_t key, parent, number;
    enum creation_state state;
    struct tutti_group *group; /* NULL: this rank is no member, or has freed it */
    bool known;                /* this rank has called, and `list` is its list */
    struct creation_members list;
    int leader; /* global rank */
    int64_t begun_ns;
    int n_arrived;
    bool *arrived;                      /* on the leader, by rank of the group: its card is here */
    char (*whereabouts)[CREATION_TEXT]; /* on the leader: what stragglers have answered; NULL: none was asked */
    struct tutti_work *waiter;          /* marked ended by the verdict */
    int status;                         /* the verdict */
    char text[CREATION_TEXT];
    uint32_t n_offers;
    uint8_t offer[CREATION_OFFERS][TUTTI_OFFER_BYTES];
    int32_t *choice;        /* of a split: color and key of each rank */
    uint32_t n_choices;     /* on a member: numbers received so far */
    struct group_args args; /* of a pending group; names and parent outlive it */
    STAILQ_HEAD(, creation_early) early;
};
TAILQ_HEAD(creation_queue, creation);

/* making.c */
struct creation *creation_find(struct tutti_group *root, uint64_t key);
struct creation *creation_new(struct tutti_group *root, uint64_t key);
/* Sends a message to a global rank.  Returns TUTTI_OK or PEER_LOST. */
int creation_send(struct tutti_group *root, int peer, const struct creation_message *message);
void creation_answer(struct tutti_group *root, int peer, const struct creation_message *to, int status,
                     const char *text);
/* Sets the verdict of this rank.  If `tell` is set, a leader sends it to all members, a member to its leader. */
void creation_decide(struct creation *creation, int status, const char *text, bool tell);
/* Decides TIMEOUT and names the stragglers. */
void creation_decide_late(struct creation *creation);
/* Fails a group on all members after a verdict of OK. */
void creation_fail_made(struct creation *creation, int status, const char *text);
int creation_send_proposal(struct creation *creation, int peer);

/* creation_receive.c */
void creation_receive(struct tutti_group *root, int peer, const struct creation_message *message);
/* Handles the messages that came before this rank called. */
void creation_receive_early(struct creation *creation);

#endif
