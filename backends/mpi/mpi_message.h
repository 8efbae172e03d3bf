/* Messages over MPI: what their three files share.
 *
 *   mpi_header.c   headers, on their way and taken in
 *   mpi_match.c    which receive a message is for
 *   mpi_message.c  the table's entries
 */
#ifndef MPI_MESSAGE_H
#define MPI_MESSAGE_H

#include "mpib.h"

enum {
    MPIB_TAG_LONG = 16,       /* the first tag for long messages */
    MPIB_TAG_LONG_END = 32767 /* every MPI has tags up to here */
};

struct mpib_header {
    uint64_t group, tag, fingerprint, bytes;
    int32_t long_tag; /* 0: the bytes are here */
    int32_t note;     /* 0: a message; enum mpib_note */
};

enum mpib_note { MPIB_NOTE_OF_CORE = 1, MPIB_NOTE_GOODBYE, MPIB_NOTE_LEFT };

struct mpib_envelope {
    struct mpib_header header;
    char data[MPIB_SHORT];
};

struct mpib_slot {
    struct mpib_slot *next;
    struct mpib_envelope envelope;
};

/* A message that came before its receive. */
struct mpib_arrived {
    TAILQ_ENTRY(mpib_arrived) link;
    uint64_t number;
    int32_t source; /* global rank */
    struct mpib_header header;
    char data[]; /* of a short one */
};

/* ---- mpi_header.c ---------------------------------------------------------------------------------------------- */

/* Sends one for `message`, which is long and follows, or short and rides along; NULL: a note.  DONE: nobody need wait
 * for it; PENDING; or an error. */
int mpib_header_send(struct mpib_family *family, int32_t to, const struct mpib_header *header, const void *data,
                     const struct mpib_flight *message);

enum mpib_came { MPIB_NOTHING, MPIB_KEPT, MPIB_WANTED };

/* Takes one in, if one is there. */
enum mpib_came mpib_header_poll(struct mpib_family *family);

/* ---- mpi_match.c ----------------------------------------------------------------------------------------------- */

/* A receive, for which a message may have come: DONE, PENDING or an error. */
int mpib_match_recv(struct mpib_group *group, tutti_request *request);

/* Whether a receive was waiting for the message, and gets it. */
bool mpib_match_arrive(struct mpib_family *family, int32_t source, const struct mpib_envelope *envelope);

/* Tells receives whose message had come, and did not fit.  How many. */
int mpib_match_tell(struct mpib_family *family);

#endif
