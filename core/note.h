/* A note between ranks as bytes.  Pure functions: a parser believes nothing, for the bytes come from another machine.
 *
 * On the wire: type, status, sequence, fingerprint, and the sender's latest sequence and fingerprint as little-endian
 * 32- and 64-bit numbers; then, for NOTE_FAILED (whose latest says how many), the ranks that were given up, and text
 * without a terminator; for NOTE_HERE the places of other ranks: rank, age, silence, latest sequence and fingerprint of
 * each.  NOTE_LEFT has no bytes: it is a backend's answer where the group has been closed. */
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

/* Where a rank stands that others wait for. */
struct note_place {
    uint32_t rank;                /* of the group */
    uint32_t age_ms;              /* of this knowledge */
    uint32_t silent_ms;           /* since when it owes an answer; 0: it owes none */
    uint64_t latest, fingerprint; /* its latest collective, as far as it is known; 0: it has called none */
    uint64_t message;             /* as in a note, where the rank has told it itself: others do not pass it on */
};

/* A send or receive that a rank waits in. */
struct note_message {
    bool receives;
    int peer; /* global; -1: any */
    int tag;  /* TUTTI_ANY_TAG: any */
};

/* Ranks of the group, no more than anybody tells of. */
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
    struct note_ranks given_up;           /* FAILED, with TIMEOUT: for whom nobody waits any more; not checked either */
    char text[NOTE_TEXT + 1];             /* FAILED: why; as much as the ranks leave room for */
    int n_places;                         /* HERE: whom the sender waits for in the end */
    struct note_place place[NOTE_PLACES]; /* ranks are not checked against the group's size */
};

/* As a number, which is not 0; and back again. */
uint64_t note_message_pack(const struct note_message *message);
struct note_message note_message_unpack(uint64_t packed);

/* The number of bytes written. */
size_t note_encode(const struct note *note, uint8_t wire[NOTE_BYTES]);

/* false: it is malformed.  Control characters in the text become question marks, as it is shown to people. */
bool note_parse(const void *message, size_t bytes, struct note *note);

#endif
