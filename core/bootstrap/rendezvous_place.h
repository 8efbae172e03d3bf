/* What an init method says: where the store is, and which rank this is.  Reads text and environment; opens nothing. */
#ifndef RENDEZVOUS_PLACE_H
#define RENDEZVOUS_PLACE_H

#include <stdbool.h>
#include <stdint.h>

enum { RENDEZVOUS_HOST_MAX = 256, RENDEZVOUS_PATH_MAX = 4096 };

enum place_kind { PLACE_ALONE, PLACE_TCP, PLACE_FILE };

struct place {
    enum place_kind kind;
    int rank, world_size, local_rank, local_world_size, node_rank; /* -1: not said */
    bool hosted;                                                   /* the launcher runs the tcp server */
    bool by_launcher; /* host and port are not known yet: they come through the launcher (launcher.h) */
    uint16_t port;
    char host[RENDEZVOUS_HOST_MAX];
    char path[RENDEZVOUS_PATH_MAX];
};

/* Fills *place from the init method (NULL: env://). */
int place_find(const char *init_method, struct place *place);

/* tcp:// and file:// */
int place_from_url(const char *url, struct place *place);

/* env:// and the launchers' variables */
int place_from_env(struct place *place);

/* env:// of a caller that gives rank and world size by argument: the environment says where to meet. */
int place_from_env_as(int rank, int world_size, struct place *place);

#endif
