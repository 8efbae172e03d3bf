/* What an init method says: where the store is, and which rank this is.  Reads text and environment; opens nothing. */
#ifndef RENDEZVOUS_SPEC_H
#define RENDEZVOUS_SPEC_H

#include <stdbool.h>
#include <stdint.h>

enum { RENDEZVOUS_HOST_MAX = 256, RENDEZVOUS_PATH_MAX = 4096 };

enum rendezvous_kind { RENDEZVOUS_ALONE, RENDEZVOUS_TCP, RENDEZVOUS_FILE };

struct rendezvous_spec {
    enum rendezvous_kind kind;
    int rank, world_size, local_rank, local_world_size, node_rank; /* -1: not said */
    bool launcher_hosts_store;                                     /* the launcher runs the tcp server */
    bool via_launcher; /* host and port are not known yet: they come through the launcher (launcher.h) */
    uint16_t port;
    char host[RENDEZVOUS_HOST_MAX];
    char path[RENDEZVOUS_PATH_MAX];
};

/* Fills *spec from the init method (NULL: env://). */
int rendezvous_spec_parse(const char *init_method, struct rendezvous_spec *spec);

/* tcp:// and file:// */
int rendezvous_spec_from_url(const char *url, struct rendezvous_spec *spec);

/* env:// and the launchers' variables */
int rendezvous_spec_from_env(struct rendezvous_spec *spec);

/* env:// of a caller that gives rank and world size by argument: the environment says where to meet. */
int rendezvous_spec_from_env_as(int rank, int world_size, struct rendezvous_spec *spec);

#endif
