/* The meeting itself, over any store. */
#ifndef REGISTRATION_H
#define REGISTRATION_H

#include <tutti/store.h>

struct registration {
    tutti_store *store; /* a prefix of its own */
    int rank, world_size;
    int64_t timeout_ms;
    const char *file; /* the file behind the store, which may be left from an earlier run; or NULL */
    bool in_use;      /* out: the ranks of an earlier run have met there, and its rank 0 is not known to have ended */
};

/* Returns once all ranks have come, or with the reason why they cannot registration, which all of them get. */
int registration_complete(struct registration *registration);

#endif
