/* Messages over MPI: declarations shared by their three files.
 *
 *   mpi_header.c   sending and receiving headers
 *   mpi_match.c    matching messages with receives
 *   mpi_message.c  the entries of the function table
 */
#ifndef MPI_MESSAGE_H
#define MPI_MESSAGE_H

#include "mpib.h"

enum {
    MPIB_TAG_LONG = 16,       /* first tag for long messages */
    MPIB_TAG_LONG_END = 32767 /* the largest tag that every MPI supports */
};

struct mpib_header {
    uint64_t group, tag, fingerprint, bytes;
    int32_t long_tag; /* 0: the data is in the envelope */
    int32_t control;  /* 0: a message; else enum mpib_control */
};

enum mpib_control { MPIB_CONTROL_CORE = 1, MPIB_CONTROL_DEPARTURE, MPIB_CONTROL_EXIT };

struct mpib_envelope {
    struct mpib_header header;
    char data[MPIB_SHORT];
};

struct mpib_outgoing {
    struct mpib_outgoing *next;
    struct mpib_envelope envelope;
};

/* An unexpected message: it arrived before its receive was posted. */
struct mpib_arrived {
    tutti_match_message match; /* first member: cast by mpi_match.c; its key has the sender's global rank */
    struct mpib_header header;
    char data[]; /* data of a short message */
};

/* ---- mpi_header.c ---------------------------------------------------------------------------------------------- */

/* Sends a header.  `message` is NULL for a control message; a long message follows its header, a short one is carried
 * by it.  Returns DONE if the caller need not wait, PENDING, or an error. */
int mpib_header_send(struct mpib_tree *tree, int32_t to, const struct mpib_header *header, const void *data,
                     const struct mpib_pending *message);

enum mpib_arrival { MPIB_NOTHING, MPIB_KEPT, MPIB_WANTED };

/* Receives one header if one has arrived. */
enum mpib_arrival mpib_header_poll(struct mpib_tree *tree);

/* ---- mpi_match.c ----------------------------------------------------------------------------------------------- */

/* Returns the key by which a receive or probe is matched. */
tutti_match_key mpib_match_key(const struct mpib_group *group, const tutti_request *request);

/* Posts a receive, which may match a queued message.  Returns DONE, PENDING or an error. */
int mpib_match_recv(struct mpib_group *group, tutti_request *request);

/* Handles a message.  Returns true if a receive was waiting for it. */
bool mpib_match_arrive(struct mpib_tree *tree, int32_t source, const struct mpib_envelope *envelope);

/* Fails the receives whose message did not fit.  Returns how many. */
int mpib_match_report(struct mpib_tree *tree);

#endif
