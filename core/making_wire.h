/* What ranks say to each other while they make a group, as bytes.  Pure functions: a parser believes nothing.
 *
 * On the wire, little-endian: type, status (32 bits each); key, parent, number, hash of the list, hash of the backends
 * (64 bits each); length of the list (32 bits), how many of its ranks follow, how many offers follow (16 bits each).
 * Then the offers, the ranks (32 bits each), and text without a terminator.  The types do not overlap those of note.h.
 */
#ifndef MAKING_WIRE_H
#define MAKING_WIRE_H

#include <stdbool.h>
#include <tutti/backend.h>

enum {
    MAKING_HEAD = 56,
    MAKING_BYTES = 512, /* TUTTI_NOTIFY_MAX */
    MAKING_RANKS = 48,  /* of a list, as many are told */
    MAKING_OFFERS = 6,
    MAKING_TEXT = 250
};

enum making_type {
    MAKING_CARD = 64, /* member to leader: I make this group, of this list */
    MAKING_WITHDRAW,  /* member to leader: decide now, I have waited long enough */
    MAKING_FAILED,    /* to the leader: it cannot be made, or cannot be used any more */
    MAKING_VERDICT,   /* leader to member; to anybody whose list differs */
    MAKING_ASK,       /* leader to a member that has not come */
    MAKING_PLACE      /* its answer, as text */
};

/* What has to be the same on all members. */
struct making_list {
    uint64_t hash, backend_hash;
    uint32_t n, told;
    int32_t rank[MAKING_RANKS]; /* global; the first ones */
    char backend[MAKING_TEXT];
};

struct making_message {
    uint32_t type;
    int32_t status;
    uint64_t key;            /* of the group that is made */
    uint64_t parent;         /* id of the group that it is made from */
    uint64_t number;         /* among those made from it by all of its ranks; 0: made by the members alone */
    struct making_list list; /* CARD */
    uint32_t n_offers;       /* VERDICT */
    uint8_t offer[MAKING_OFFERS][TUTTI_OFFER_BYTES];
    char text[MAKING_TEXT]; /* why; a CARD's backends are there on the wire */
};

/* The number of bytes written. */
size_t making_encode(const struct making_message *message, uint8_t wire[MAKING_BYTES]);

/* false: it is malformed. */
bool making_parse(const void *wire, size_t bytes, struct making_message *message);

/* Whether this is one of these messages. */
bool making_is(const void *wire, size_t bytes);

/* "rank 1 made this group of [0,1,3,2], rank 0 of [0,1,2,3]"; false: the lists are the same. */
bool making_differs(const struct making_list *a, int rank_a, const struct making_list *b, int rank_b, char *text,
                    size_t size);

#endif
