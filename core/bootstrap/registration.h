/* Registers the ranks of a job in any store. */
#ifndef REGISTRATION_H
#define REGISTRATION_H

#include <tutti/store.h>

struct registration {
    tutti_store *store; /* a prefix store that no other code uses */
    int rank, world_size;
    int64_t timeout_ms;
    const char *file;      /* the store's file, which an earlier run may have left; or NULL */
    const char *left_over; /* what to do about keys of an earlier run; NULL: there can be none, or `file` is set */
    bool registered;       /* out: this rank has registered, whatever came of it */
    bool failed_before;    /* out: the rank is registered from an attempt that has failed, whose keys may go soon */
    bool in_use; /* out: the ranks of an earlier run have registered there, and its rank 0 may still be running */
};

/* Registers this rank and waits for all ranks.  Returns the error that keeps them from completing, the same on all
 * ranks. */
int registration_complete(struct registration *registration);

#endif
