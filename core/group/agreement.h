/* One verdict for all ranks that open something together, through their store.
 *
 * The last rank to arrive publishes OK, unless a rank has published a failure before.  So all ranks get the same
 * verdict, even if a rank dies, or arrives after the others have given it up. */
#ifndef AGREEMENT_H
#define AGREEMENT_H

#include <stddef.h>
#include <tutti/store.h>

enum { AGREEMENT_TEXT = 64 };

struct agreement {
    tutti_store *store;
    int64_t turn;     /* number of groups opened over this store before */
    const char *name; /* the same on all ranks; differs between the agreements of a turn */
    const char *what; /* what is being agreed on; begins the error text */
    int rank, size;
    int64_t timeout_ms;          /* limit for all ranks to arrive */
    int (*check)(void *context); /* returns PEER_LOST if a rank has ended */
    /* Called on the last rank to arrive, if not NULL.  Its text is sent to all ranks, or its error. */
    int (*decide)(void *context, char text[AGREEMENT_TEXT]);
    void *context;
    char decided[AGREEMENT_TEXT]; /* text written by `decide`, or empty */
};

/* Submits this rank's status, with the thread's error text.  Returns TUTTI_OK on all ranks, or an error on all: the
 * rank's own, or the first one published. */
int agreement_reach(struct agreement *agreement, int status);

#endif
