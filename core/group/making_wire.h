/* Wire format of the messages with which ranks agree on a group.  Pure functions; the parser checks every field.
 *
 * On the wire, little-endian: type, status (32 bits each); key, parent, number, hash of the list, hash of the backends
 * (64 bits each); length of the list (32 bits), how many of its ranks follow, how many offers follow (16 bits each);
 * whether it is a split, its color and key (32 bits each).  Then the offers, the ranks (32 bits each), and text without
 * a terminator.  The types do not overlap those of note.h.
 */
#ifndef MAKING_WIRE_H
#define MAKING_WIRE_H

#include <stdbool.h>
#include <tutti/backend.h>

enum {
    MAKING_HEAD = 68,
    MAKING_BYTES = 512, /* TUTTI_NOTIFY_MAX */
    MAKING_RANKS = 48,  /* most ranks of a list in a message */
    MAKING_OFFERS = 6,
    MAKING_TEXT = 250
};

enum making_type {
    MAKING_CARD = 64, /* member to leader: I make this group, of this list */
    MAKING_WITHDRAW,  /* member to leader: decide now, my time is over */
    MAKING_FAILED,    /* to the leader: the group cannot be made, or has failed */
    MAKING_VERDICT,   /* leader to member, and to any rank whose list differs */
    MAKING_ASK,       /* leader to a straggler: where are you */
    MAKING_PLACE,     /* the answer, as text */
    MAKING_CHOICES    /* leader to member, before the verdict on a split: colors and keys, by rank */
};

/* What must be alike on all members. */
struct making_list {
    uint64_t hash, backend_hash;
    uint32_t n, told;
    uint32_t splits;            /* 1: a split of this list, not a group of it */
    int32_t rank[MAKING_RANKS]; /* global ranks: the first `told` of `n`.  CHOICES: color, key, color, ..; `n` is their
                                   end */
    char backend[MAKING_TEXT];
};

struct making_message {
    uint32_t type;
    int32_t status;
    uint64_t key;            /* of the group that is made */
    uint64_t parent;         /* id of the group that it is made from */
    uint64_t number;         /* its place among the groups that all ranks of parent make; 0: members_only */
    struct making_list list; /* CARD */
    uint32_t n_offers;       /* VERDICT */
    uint8_t offer[MAKING_OFFERS][TUTTI_OFFER_BYTES];
    int32_t color, split_key; /* CARD of a split */
    char text[MAKING_TEXT];   /* the reason; on the wire a CARD has its backends here */
};

/* Returns the number of bytes written. */
size_t making_encode(const struct making_message *message, uint8_t wire[MAKING_BYTES]);

/* Returns false if it is malformed. */
bool making_parse(const void *wire, size_t bytes, struct making_message *message);

/* True if the type is one of these. */
bool making_is(const void *wire, size_t bytes);

/* Writes how two lists differ: "rank 1 made this group of [0,1,3,2], rank 0 of [0,1,2,3]".  Returns false if they are
 * the same. */
bool making_differs(const struct making_list *a, int rank_a, const struct making_list *b, int rank_b, char *text,
                    size_t size);

#endif
