/* Parses init methods: where the store is, and which rank this is.  Reads text and the environment, and opens
 * nothing. */
#ifndef RENDEZVOUS_SPEC_H
#define RENDEZVOUS_SPEC_H

#include <stdbool.h>
#include <stdint.h>

enum { RENDEZVOUS_HOST_MAX = 256, RENDEZVOUS_PATH_MAX = 4096 };

enum rendezvous_kind { RENDEZVOUS_ALONE, RENDEZVOUS_TCP, RENDEZVOUS_FILE, RENDEZVOUS_REDIS };

struct rendezvous_spec {
    enum rendezvous_kind kind;
    int rank, world_size, local_rank, local_world_size, node_rank; /* -1: not specified */
    bool launcher_hosts_store;                                     /* the launcher runs the tcp server */
    bool via_launcher; /* host and port are exchanged through the launcher (launcher.h), and not known yet */
    uint16_t port;
    char host[RENDEZVOUS_HOST_MAX];
    char path[RENDEZVOUS_PATH_MAX]; /* of the file; or the redis server's URL, which may hold a password */
};

/* Parses the init method (NULL: env://). */
int rendezvous_spec_parse(const char *init_method, struct rendezvous_spec *spec);

/* Parses tcp://, file:// and redis://. */
int rendezvous_spec_from_url(const char *url, struct rendezvous_spec *spec);

/* Reads env:// and the variables of the launchers. */
int rendezvous_spec_from_env(struct rendezvous_spec *spec);

/* Fills in the rank and world size that the launcher has set, if there is one, and what else it says of this rank. */
int rendezvous_spec_add_ranks(struct rendezvous_spec *spec);

/* Reads env:// for a caller that passes rank and world size as arguments: only the address comes from the
 * environment. */
int rendezvous_spec_from_env_as(int rank, int world_size, struct rendezvous_spec *spec);

#endif
