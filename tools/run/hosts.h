/* The hosts of --hosts and --hostfile. */
#ifndef RUN_HOSTS_H
#define RUN_HOSTS_H

#include <stdbool.h>

enum { HOSTS_MAX = 1 << 16, HOSTS_SLOTS_MAX = 1 << 20 };

struct host {
    char *name; /* as ssh takes it: HOST or USER@HOST */
    int slots;  /* ranks there; 0: as many as --nproc-per-node says */
};

struct hosts {
    struct host *list;
    int n;
};

/* Adds "HOST[:SLOTS],..".  An address of IPv6 with slots is in brackets.  A host that is listed twice gets the slots of
 * both.  Returns NULL, or what is wrong, which lasts until the next call. */
const char *hosts_add(struct hosts *hosts, const char *text);

/* Adds the lines of a file, as Open MPI and MPICH write them: "HOST", "HOST:SLOTS" or "HOST slots=SLOTS".  "#" begins a
 * comment.  Returns NULL, or what is wrong. */
const char *hosts_read(struct hosts *hosts, const char *path);

void hosts_free(struct hosts *hosts);

/* Returns the host's address: its name without the user. */
const char *hosts_address(const struct host *host);

/* True if the name is of loopback, or of this machine. */
bool hosts_is_loopback(const struct host *host);
bool hosts_is_this(const struct host *host);

#endif
