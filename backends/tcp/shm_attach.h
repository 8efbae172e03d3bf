/* Attaching, between the files that do it: shm_attach.c (who, and a member's part), shm_host.c (the host's part),
 * shm_packet.c (packets with descriptors over unix sockets). */
#ifndef SHM_ATTACH_H
#define SHM_ATTACH_H

#include <sys/socket.h>
#include <sys/un.h>

#include "shm.h"

enum shm_word { SHM_CAN_PULL = 1, SHM_CAN_SHARE = 2 };

enum {
    SHM_FDS = 3,          /* of a rank: its bell, its life, its arena */
    SHM_PLACE = 4,        /* bytes: how many seats there are, which one is the member's */
    SHM_ROUND_MS = 10000, /* a host waits at most so long for its members */
    SHM_CROWD = 2 * SHM_SEATS
};

/* What a rank gives to the others.  like: all zero where it takes no part; only its own. */
struct entry {
    int32_t rank;
    uint8_t like[32];
    uint8_t name[WIRE_NONCE];
    uint8_t nonce[WIRE_NONCE];
};

/* A rank that is attaching, and what it goes by. */
struct attach {
    const struct shm_config *config;
    const tutti_host *host;
    struct shm *shm;
    struct entry mine;
    int listener, bell, life, arena;
    struct shm_held held;
    int link[SHM_SEATS];                 /* the host's: to each member; -1: it has not come, -2: it will not */
    uint8_t name[SHM_SEATS][WIRE_NONCE]; /* the host's: where each member listens, as long as it lives */
    bool in[SHM_SEATS];
    char why[160]; /* it shares no memory */
};

/* ---- shm_attach.c ------------------------------------------------------------------------------------------ */

/* When a member's part in opening must be over; and when a round must be, of which the host has three.  A host that
 * leaves out a member that is held up does so while the others still wait for it. */
int64_t shm_deadline_ns(const struct attach *self);
int64_t shm_round_deadline_ns(const struct attach *self);
void shm_sign(const struct attach *self, struct wire_greeting *greeting, uint8_t out[WIRE_GREETING]);
bool shm_verify(const struct attach *self, const uint8_t bytes[WIRE_GREETING], const struct wire_greeting *greeting);
bool shm_make_seats(struct attach *self, int n, int seat);
/* The last step, the same for all: who is in. */
bool shm_settle(struct attach *self, const bool *in, uint8_t word);
/* What this rank can do with all that are in: the round's word. */
uint8_t shm_try_all(struct attach *self);

/* ---- shm_host.c -------------------------------------------------------------------------------------------- */

/* The host's part, for these n ranks, itself first.  0, or 1 with the reason in why. */
int shm_serve(struct attach *self, const int32_t *rank, int n);

/* ---- shm_packet.c ------------------------------------------------------------------------------------------ */

/* An abstract address: no file.  Returns its length. */
socklen_t shm_address(const uint8_t name[WIRE_NONCE], struct sockaddr_un *address);
int shm_socket(void);
bool shm_is_same_user(int fd);
bool shm_wait(int fd, int64_t end_ns, const tutti_host *host);
/* One packet with n_fds descriptors, at most SHM_FDS. */
bool shm_give(int fd, const void *data, size_t bytes, const int *fds, int n_fds);
/* One packet of exactly these sizes; descriptors that came are the caller's, or closed where something is wrong. */
bool shm_take(int fd, void *data, size_t bytes, int *fds, int n_fds);

#endif
