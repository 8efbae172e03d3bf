/* Internal interface of attaching: attach.c (a member's side), attach_host.c (the host rank's side), packet.c (packets
 * with descriptors over unix sockets). */
#ifndef ATTACH_H
#define ATTACH_H

#include <sys/socket.h>
#include <sys/un.h>

#include "tcp/shm/shm.h"

enum shm_word { SHM_CAN_READ_MEMORY = 1, SHM_CAN_SHARE = 2 };

enum {
    SHM_FDS = 3,          /* descriptors per rank: doorbell, liveness descriptor, arena */
    SHM_PLACE = 4,        /* bytes of a member's place: number of ranks, and its local rank */
    SHM_ROUND_MS = 10000, /* maximum time of a round for the host rank */
    SHM_PENDING_MAX = 2 * SHM_RANKS_MAX
};

/* A rank's store entry.  `like` is the host's identity, or zeros if the rank takes no part.  Set for this rank only. */
struct entry {
    int32_t rank;
    uint8_t like[32];
    uint8_t name[HANDSHAKE_NONCE];
    uint8_t nonce[HANDSHAKE_NONCE];
};

/* State of a rank while attaching. */
struct attach {
    const struct transport_config *config;
    const struct shm_colls *colls;
    const tutti_host *host;
    struct shm *shm;
    struct entry mine;
    int listener, doorbell_fd, liveness_fd, arena_fd;
    struct shm_held held;
    int link[SHM_RANKS_MAX]; /* host rank: link to each member; -1: not connected yet, -2: will not connect */
    uint8_t name[SHM_RANKS_MAX][HANDSHAKE_NONCE]; /* host rank: name of each member's socket */
    bool in[SHM_RANKS_MAX];
    char why[160]; /* why this rank shares no memory */
};

/* ---- attach.c ------------------------------------------------------------------------------------------ */

/* Return deadlines from now: of a member's attaching, and of one of the host rank's rounds.  A round is shorter, so
 * that the host rank excludes a slow member while the others still wait. */
int64_t shm_deadline_ns(const struct attach *self);
int64_t shm_round_deadline_ns(const struct attach *self);
bool shm_create(struct attach *self, int n, int local_rank);
/* Fixes the members.  This is the last step, and it has the same result on all ranks. */
bool shm_fix_members(struct attach *self, const bool *in, uint8_t word);
/* Returns this rank's answer in the probe round: an shm_word of what it can do with all members. */
uint8_t shm_probe_all(struct attach *self);

/* ---- attach_host.c -------------------------------------------------------------------------------------------- */

/* Attaches these n ranks, the host rank first.  Returns 0, or 1 with the reason in `why`. */
int shm_host_serve(struct attach *self, const int32_t *rank, int n);

/* ---- packet.c ------------------------------------------------------------------------------------------ */

/* Fills an abstract address, which needs no file.  Returns its length. */
socklen_t shm_address(const uint8_t name[HANDSHAKE_NONCE], struct sockaddr_un *address);
int shm_socket(void);
bool shm_is_same_user(int fd);
bool shm_wait(int fd, int64_t end_ns, const tutti_host *host);
/* Sends one packet with n_fds descriptors, at most SHM_FDS. */
bool shm_send_packet(int fd, const void *data, size_t bytes, const int *fds, int n_fds);
/* Receives one packet of exactly these sizes.  The caller owns the descriptors.  A failure closes them, with EMFILE if
 * this process has no free ones. */
bool shm_receive_packet(int fd, void *data, size_t bytes, int *fds, int n_fds);

#endif
