/* Wire format of the messages with which ranks agree on a group.  Pure functions; the parser checks every field.
 *
 * On the wire, little-endian: type, status (32 bits each); key, parent, number, hash of the list, hash of the backends
 * (64 bits each); length of the list (32 bits), how many of its ranks follow, how many offers follow (16 bits each);
 * whether it is a split, its color and key (32 bits each).  Then the offers, the ranks (32 bits each), and text without
 * a terminator.  The types do not overlap those of control_message.h.
 */
#ifndef CREATION_WIRE_H
#define CREATION_WIRE_H

#include <stdbool.h>
#include <tutti/backend.h>

enum {
    CREATION_HEAD = 68,
    CREATION_BYTES = 512, /* TUTTI_NOTIFY_MAX */
    CREATION_RANKS = 48,  /* most ranks of a list in one message */
    CREATION_OFFERS = 6,
    CREATION_TEXT = 250
};

enum creation_type {
    CREATION_PROPOSAL = 64, /* member to leader: it calls for this group, with this list */
    CREATION_WITHDRAW,      /* member to leader: decide now, its timeout has passed */
    CREATION_FAILED,        /* to the leader: the group cannot be made, or has failed */
    CREATION_VERDICT,       /* leader to member, and to any rank whose list differs */
    CREATION_ASK,           /* leader to a straggler: where is it */
    CREATION_WHEREABOUTS,   /* the answer, as text */
    CREATION_CHOICES        /* leader to member, before the verdict on a split: colors and keys, by rank */
};

/* What must be alike on all members. */
struct creation_members {
    uint64_t hash, backend_hash;
    uint32_t n, n_listed;
    uint32_t splits;              /* 1: a split of this list, not a group of it */
    int32_t rank[CREATION_RANKS]; /* global ranks: the first `n_listed` of `n`.  CHOICES: color, key, color, ..; `n` is
                                   their end */
    char backend[CREATION_TEXT];
};

struct creation_message {
    uint32_t type;
    int32_t status;
    uint64_t key;                 /* of the new group */
    uint64_t parent;              /* id of its parent */
    uint64_t number;              /* its place among the groups that all ranks of the parent make; 0: members_only */
    struct creation_members list; /* PROPOSAL */
    uint32_t n_offers;            /* VERDICT */
    uint8_t offer[CREATION_OFFERS][TUTTI_OFFER_BYTES];
    int32_t color, split_key; /* PROPOSAL of a split */
    char text[CREATION_TEXT]; /* the reason; on the wire a PROPOSAL has its backends here */
};

/* Returns the number of bytes written. */
size_t creation_wire_encode(const struct creation_message *message, uint8_t wire[CREATION_BYTES]);

/* Returns false if it is malformed. */
bool creation_wire_parse(const void *wire, size_t bytes, struct creation_message *message);

/* True if the message is one of these types. */
bool creation_wire_is(const void *wire, size_t bytes);

/* Writes how two lists differ: "rank 1 made this group of [0,1,3,2], rank 0 of [0,1,2,3]".  Returns false if they are
 * equal. */
bool creation_wire_describe_difference(const struct creation_members *a, int rank_a, const struct creation_members *b,
                                       int rank_b, char *text, size_t size);

#endif
