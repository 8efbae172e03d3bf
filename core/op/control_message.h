/* Wire format of control messages between ranks.  Pure functions; the parser checks every field.
 *
 * On the wire: type, status, sequence, fingerprint, and the sender's latest sequence and fingerprint as little-endian
 * 32- and 64-bit numbers; then, for CONTROL_FAILED, the ranks that were given up (`latest` is their number), and text
 * without a terminator; for CONTROL_HERE the positions of stragglers: rank, age, silence, latest sequence and
 * fingerprint of each.  CONTROL_LEFT has no bytes: a backend answers so for a group that has been closed. */
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
    uint32_t rank;                /* of the group */
    uint32_t age_ms;              /* age of this report */
    uint32_t silent_ms;           /* time since the first question without an answer; 0: all are answered */
    uint64_t latest, fingerprint; /* its latest known collective; 0: none */
    uint64_t message;             /* as control_message.fingerprint; only in a rank's own report, not passed on */
};

/* A send or receive that a rank waits in. */
struct control_wait {
    bool receives;
    int peer; /* global; -1: any */
    int tag;  /* TUTTI_ANY_TAG: any */
};

/* A set of ranks of the group, as many as a control message can hold. */
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
    uint64_t sequence;    /* HERE: of the collective that the sender waits in; 0: it waits in none */
    uint64_t fingerprint; /* HERE: of control_wait_pack; 0: it waits in no message */
    uint64_t latest;
    uint64_t latest_fingerprint;
    struct rank_set given_up;    /* FAILED, with TIMEOUT: stragglers that were given up; not range-checked */
    char text[CONTROL_TEXT + 1]; /* FAILED: the reason, as much as fits behind the ranks */
    int n_positions;             /* HERE: the stragglers that the sender knows */
    struct control_position position[CONTROL_POSITIONS]; /* ranks are not range-checked */
};

/* Packs a message into a number other than 0, and back. */
uint64_t control_wait_pack(const struct control_wait *message);
struct control_wait control_wait_unpack(uint64_t packed);

/* Returns the number of bytes written. */
size_t control_message_encode(const struct control_message *message, uint8_t wire[CONTROL_BYTES]);

/* Returns false if it is malformed.  Control characters in the text become question marks, because users see it. */
bool control_message_parse(const void *bytes_received, size_t bytes, struct control_message *message);

#endif
