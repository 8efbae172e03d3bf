/* Wire format of control messages ("notes") between ranks.  Pure functions; the parser checks every field.
 *
 * On the wire: type, status, sequence, fingerprint, and the sender's latest sequence and fingerprint as little-endian
 * 32- and 64-bit numbers; then, for NOTE_FAILED, the ranks that were given up (`latest` is their number), and text
 * without a terminator; for NOTE_HERE the positions of stragglers: rank, age, silence, latest sequence and fingerprint
 * of each.  NOTE_LEFT has no bytes: a backend answers so for a group that has been closed. */
#ifndef NOTE_H
#define NOTE_H

#include <stdbool.h>
#include <tutti/types.h>

enum {
    NOTE_TEXT = 400,
    NOTE_HEAD = 40,
    NOTE_BYTES = NOTE_HEAD + NOTE_TEXT,
    NOTE_PLACE = 28,
    NOTE_PLACES = NOTE_TEXT / NOTE_PLACE
};

enum note_type { NOTE_LEFT, NOTE_FAILED, NOTE_ASK, NOTE_HERE };

/* The position of a straggler. */
struct note_place {
    uint32_t rank;                /* of the group */
    uint32_t age_ms;              /* age of this report */
    uint32_t silent_ms;           /* time since the first question without an answer; 0: all are answered */
    uint64_t latest, fingerprint; /* its latest known collective; 0: none */
    uint64_t message;             /* as note.fingerprint; only in a rank's own report, not passed on */
};

/* A send or receive that a rank waits in. */
struct note_message {
    bool receives;
    int peer; /* global; -1: any */
    int tag;  /* TUTTI_ANY_TAG: any */
};

/* A set of ranks of the group, as many as a note can hold. */
struct note_ranks {
    int n;
    uint32_t rank[NOTE_PLACES];
};

static inline bool note_ranks_have(const struct note_ranks *ranks, int rank)
{
    for (int i = 0; i < ranks->n; i++)
        if (ranks->rank[i] == (uint32_t)rank) return true;
    return false;
}

struct note {
    uint32_t type;
    int32_t status;
    uint64_t sequence;    /* HERE: of the collective that the sender waits in; 0: it waits in none */
    uint64_t fingerprint; /* HERE: of note_message_pack; 0: it waits in no message */
    uint64_t latest;
    uint64_t latest_fingerprint;
    struct note_ranks given_up;           /* FAILED, with TIMEOUT: stragglers that were given up; not range-checked */
    char text[NOTE_TEXT + 1];             /* FAILED: the reason, as much as fits behind the ranks */
    int n_places;                         /* HERE: the stragglers that the sender knows */
    struct note_place place[NOTE_PLACES]; /* ranks are not range-checked */
};

/* Packs a message into a number other than 0, and back. */
uint64_t note_message_pack(const struct note_message *message);
struct note_message note_message_unpack(uint64_t packed);

/* Returns the number of bytes written. */
size_t note_encode(const struct note *note, uint8_t wire[NOTE_BYTES]);

/* Returns false if it is malformed.  Control characters in the text become question marks, because users see it. */
bool note_parse(const void *message, size_t bytes, struct note *note);

#endif
