/* Wire format of control messages between ranks.  All functions are pure.  The parser checks every field.
 *
 * A message starts with type, status, sequence, fingerprint, and the sender's latest sequence and fingerprint, as
 * little-endian 32- and 64-bit numbers.  CONTROL_FAILED appends the ranks that were given up (`latest` is their number)
 * and text without a terminator.  CONTROL_HERE appends the positions of stragglers: rank, age, silence, latest sequence
 * and fingerprint of each.  CONTROL_LEFT has no bytes: a backend answers with it for a group that has been closed. */
#ifndef CONTROL_MESSAGE_H
#define CONTROL_MESSAGE_H

#include <stdbool.h>
#include <tutti/types.h>

enum {
    CONTROL_TEXT = 400,
    CONTROL_HEAD = 40,
    CONTROL_BYTES = CONTROL_HEAD + CONTROL_TEXT,
    CONTROL_POSITION = 28,
    CONTROL_POSITIONS = CONTROL_TEXT / CONTROL_POSITION
};

enum control_type { CONTROL_LEFT, CONTROL_FAILED, CONTROL_ASK, CONTROL_HERE };

/* The position of a straggler. */
struct control_position {
    uint32_t rank;                /* rank in the group */
    uint32_t age_ms;              /* age of this report */
    uint32_t silent_ms;           /* time since the first question without an answer; 0: all are answered */
    uint64_t latest, fingerprint; /* the straggler's latest known collective; 0: none */
    uint64_t message;             /* control_wait_pack of the message it waits for; set in a rank's own report alone */
};

/* A send or receive in which a rank waits. */
struct control_wait {
    bool receives;
    int peer; /* global rank; -1: any */
    int tag;  /* TUTTI_ANY_TAG: any */
};

/* A set of ranks of a group.  Its capacity is what a control message can hold. */
struct rank_set {
    int n;
    uint32_t rank[CONTROL_POSITIONS];
};

static inline bool rank_set_has(const struct rank_set *ranks, int rank)
{
    for (int i = 0; i < ranks->n; i++)
        if (ranks->rank[i] == (uint32_t)rank) return true;
    return false;
}

struct control_message {
    uint32_t type;
    int32_t status;
    uint64_t sequence;    /* HERE: sequence number of the collective in which the sender waits, or 0 */
    uint64_t fingerprint; /* HERE: control_wait_pack of the message in which the sender waits, or 0 */
    uint64_t latest;
    uint64_t latest_fingerprint;
    struct rank_set given_up;    /* FAILED with TIMEOUT: the stragglers that were given up; not range-checked */
    char text[CONTROL_TEXT + 1]; /* FAILED: the reason, truncated to the space after the ranks */
    int n_positions;             /* HERE: number of stragglers that the sender reports */
    struct control_position position[CONTROL_POSITIONS]; /* their ranks are not range-checked */
};

/* Packs a message into a number other than 0.  control_wait_unpack reverses it. */
uint64_t control_wait_pack(const struct control_wait *message);
struct control_wait control_wait_unpack(uint64_t packed);

/* Encodes a message and returns its number of bytes. */
size_t control_message_encode(const struct control_message *message, uint8_t wire[CONTROL_BYTES]);

/* Parses a message.  Returns false if it is malformed.  Control characters in the text become question marks, because
 * users see it. */
bool control_message_parse(const void *bytes_received, size_t bytes, struct control_message *message);

#endif
