/* One verdict for all ranks that open something together, through their store.
 *
 * The last rank to arrive publishes OK, unless a rank has published a failure before.  So no rank has an answer of its
 * own, even if a rank dies, or arrives after the others have given it up. */
#ifndef AGREEMENT_H
#define AGREEMENT_H

#include <stddef.h>
#include <tutti/store.h>

enum { AGREEMENT_TEXT = 64 };

struct agreement {
    tutti_store *store;
    int64_t turn;     /* how many groups were opened over this store before */
    const char *name; /* alike on all ranks; another one for each agreement of a turn */
    const char *what; /* that failed, for the error text */
    int rank, size;
    int64_t timeout_ms;          /* for all ranks to arrive */
    int (*check)(void *context); /* PEER_LOST if a rank has ended */
    /* Called on the last rank to arrive, if not NULL; its text goes to all, or its error. */
    int (*decide)(void *context, char text[AGREEMENT_TEXT]);
    void *context;
    char decided[AGREEMENT_TEXT]; /* that text; empty: none */
};

/* Hands in this rank's status, with the thread's error text.  Returns TUTTI_OK on all ranks, or an error on all: the
 * rank's own, or the first one that any has published. */
int agreement_reach(struct agreement *agreement, int status);

#endif
