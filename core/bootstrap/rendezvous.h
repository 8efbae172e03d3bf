/* Rendezvous: how the ranks of a job find each other.  The init method specifies a store, and all ranks register in
 * it. */
#ifndef RENDEZVOUS_H
#define RENDEZVOUS_H

#include <tutti/store.h>

#include "bootstrap/rendezvous_spec.h"

struct rendezvous_args {
    const char *init_method; /* "env://", "tcp://host:port?rank=R&world_size=N", "file:///path?..."; NULL: env:// */
    tutti_store *store;      /* or an existing store, with rank and world_size; borrowed */
    const char *prefix;      /* prefix of the keys; NULL: "tutti/world".  Two worlds in one store need two prefixes */
    int rank, world_size;    /* -1: not given as an argument */
    int64_t timeout_ms;      /* 0 or TUTTI_DEFAULT_TIMEOUT: the default of the store, 5 minutes */
};

struct rendezvous {
    tutti_store *store; /* the store in which the ranks registered; keys outside the prefix are free for other uses */
    tutti_store *launcher; /* outlives the ranks: the launcher's whole store, or this start's part of a redis
                            * server.  `store` is a part of it.  NULL: there is none */
    bool launcher_ranks;   /* the ranks have the numbers that the launcher gave them */
    int rank, world_size;
    int local_rank, local_world_size, node_rank; /* -1 if the launcher did not set them */
    char address[RENDEZVOUS_HOST_MAX];           /* address of the tcp store; "" otherwise */
    uint16_t port;
    bool rank0_hosts;    /* rank 0's process runs the store's server */
    bool hosts;          /* this rank runs the store's server, which the others need until they have left */
    char *remove;        /* internal: the file that rank 0 removes when it leaves */
    bool on_server;      /* internal: the store is on a redis server */
    bool clears;         /* internal: the last rank to leave deletes the world's keys */
    uint64_t generation; /* internal: of the ranks that leave together */
};

/* Registers this rank and waits until all ranks have registered.  The error messages fit every rank:
 *   INVALID_ARGUMENT  a variable, URL or argument is missing or malformed, or they contradict each other
 *   MISMATCH          ranks differ in world size, or two processes have the same rank
 *   TIMEOUT           "joined 2 of 3, missing 1"
 *   STORE, AUTH       errors of the store */
int rendezvous_join(const struct rendezvous_args *args, struct rendezvous *out);

/* Opens the store of a job that is under way, for a newcomer.  Sets world_size to the number of ranks with which the
 * job began, or -1 if it is unknown; the newcomer has no rank yet.  Errors: as above. */
int rendezvous_join_late(const struct rendezvous_args *args, struct rendezvous *out);

/* Notes that the rank belongs to a later generation of the world, of so many ranks. */
void rendezvous_regrouped(struct rendezvous *rendezvous, int world_size, uint64_t generation);

/* Releases the store, and with it the server that rank 0 may run.  *rendezvous may be zeroed. */
void rendezvous_leave(struct rendezvous *rendezvous);

#endif
