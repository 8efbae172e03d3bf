/* How the ranks of a job find each other: an init method names a store, and all ranks meet in it. */
#ifndef RENDEZVOUS_H
#define RENDEZVOUS_H

#include <tutti/store.h>

#include "bootstrap/rendezvous_spec.h"

struct rendezvous_args {
    const char *init_method; /* "env://", "tcp://host:port?rank=R&world_size=N", "file:///path?..."; NULL: env:// */
    tutti_store *store;      /* or a store that is there already, with rank and world_size; stays the caller's */
    const char *prefix;      /* of the keys in it; NULL: "tutti/world".  Two worlds in one store need two prefixes */
    int rank, world_size;    /* -1: not given here */
    int64_t timeout_ms;      /* 0 or TUTTI_DEFAULT_TIMEOUT: the store's 5 minutes */
};

struct rendezvous {
    tutti_store *store; /* where the ranks met; keys of other purposes may be put beside the rendezvous' own */
    int rank, world_size;
    int local_rank, local_world_size, node_rank; /* -1 where the launcher did not say */
    char address[RENDEZVOUS_HOST_MAX];           /* of the tcp store; "" otherwise */
    uint16_t port;
    bool rank0_hosts; /* rank 0's process runs the store's server */
    bool hosts;       /* this rank runs the store's server: the others need it until they have left */
    char *remove;     /* internal: the file that rank 0 removes when it leaves */
};

/* Joins and waits until all ranks have.  Errors, all with a sentence that fits every rank:
 *   INVALID_ARGUMENT  a variable, URL or argument is missing or malformed, or they contradict each other
 *   MISMATCH          ranks differ in world size, or one rank came twice
 *   TIMEOUT           "joined 2 of 3, missing 1"
 *   STORE, AUTH       of the store */
int rendezvous_join(const struct rendezvous_args *args, struct rendezvous *out);

/* Gives the store back; with it ends the server that rank 0 may run.  *rendezvous may be zero. */
void rendezvous_leave(struct rendezvous *rendezvous);

#endif
