/* Wire format of the messages by which ranks agree on a group.  All functions are pure.  The parser checks every field.
 *
 * A message is little-endian.  It starts with type and status (32 bits each), then key, parent, number, hash of the
 * list and hash of the backends (64 bits each).  The length of the list (32 bits) follows, then the number of its ranks
 * in this message and the number of offers (16 bits each).  Next come whether it is a split, its color and its key (32
 * bits each).  The offers, the ranks (32 bits each) and text without a terminator end it.  The types do not overlap
 * those of control_message.h.
 */
#ifndef CREATION_WIRE_H
#define CREATION_WIRE_H

#include <stdbool.h>
#include <tutti/backend.h>

enum {
    CREATION_HEAD = 68,
    CREATION_BYTES = 512, /* TUTTI_NOTIFY_MAX */
    CREATION_RANKS = 48,  /* maximum number of ranks of a list in one message */
    CREATION_OFFERS = 6,
    CREATION_TEXT = 250
};

enum creation_type {
    CREATION_PROPOSAL = 64, /* member to leader: this rank calls for the group, with this list */
    CREATION_WITHDRAW,      /* member to leader: its timeout has passed, so decide now */
    CREATION_FAILED,        /* to the leader: the group cannot be made, or has failed */
    CREATION_VERDICT,       /* leader to member, and to any rank with another list */
    CREATION_ASK,           /* leader to a straggler: asks for its whereabouts */
    CREATION_WHEREABOUTS,   /* straggler to leader: its whereabouts as text */
    CREATION_CHOICES        /* leader to member: those colors and keys of a split for which the verdict has no room */
};

/* Terms that must be the same on all members. */
struct creation_members {
    uint64_t hash, backend_hash;
    uint32_t n, n_listed;
    uint32_t splits; /* 1: splits the parent; the list is empty */
    /* global ranks, the first `n_listed` of `n`.  CHOICES, and VERDICT on a split: colors and keys, by rank, which end
     * at index `n` */
    int32_t rank[CREATION_RANKS];
    char backend[CREATION_TEXT];
};

struct creation_message {
    uint32_t type;
    int32_t status;
    uint64_t key;                 /* identifies the new group */
    uint64_t parent;              /* id of the parent */
    uint64_t number;              /* number among the groups that all ranks of the parent make; 0: members_only */
    struct creation_members list; /* PROPOSAL, CHOICES, VERDICT on a split */
    uint32_t n_offers;            /* VERDICT only */
    uint8_t offer[CREATION_OFFERS][TUTTI_OFFER_BYTES];
    int32_t color, split_key; /* PROPOSAL of a split only */
    char text[CREATION_TEXT]; /* the reason; on the wire, a PROPOSAL has its backends here */
};

/* Encodes a message and returns its number of bytes. */
size_t creation_wire_encode(const struct creation_message *message, uint8_t wire[CREATION_BYTES]);

/* Parses a message.  Returns false if it is malformed. */
bool creation_wire_parse(const void *wire, size_t bytes, struct creation_message *message);

/* True if the message has one of the types above. */
bool creation_wire_is(const void *wire, size_t bytes);

/* Writes how two lists differ: "rank 1 made this group of [0,1,3,2], rank 0 of [0,1,2,3]".  Returns false if they are
 * equal. */
bool creation_wire_describe_difference(const struct creation_members *a, int rank_a, const struct creation_members *b,
                                       int rank_b, char *text, size_t size);

#endif
