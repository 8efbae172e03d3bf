/* The host rank's part in attaching: see attach.c. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp/shm/attach.h"

enum {
    CALLER_MS = 1000, /* time for a connecting member to identify itself on a busy machine */
    LOOK_MS = 50      /* interval of the liveness checks while nothing happens */
};

static int expected_local_rank(const int32_t *rank, int n, uint32_t from)
{
    for (int i = 1; i < n; i++)
        if ((uint32_t)rank[i] == from) return i;
    return -1;
}

/* Handles a connection: a member that authenticates gets its link; any other is dropped. */
static void handle_hello(struct attach *self, int fd, const int32_t *rank, int n, int (*fds)[SHM_FDS],
                         struct peer_handshake *greeting, int *missing)
{
    uint8_t bytes[HANDSHAKE_BYTES];
    struct peer_handshake hello;
    int received[SHM_FDS];
    if (!shm_receive_packet(fd, bytes, sizeof bytes, received, SHM_FDS)) {
        close(fd);
        return;
    }
    int local_rank = -1;
    if (peer_handshake_parse(bytes, sizeof bytes, &hello) && hello.kind == HANDSHAKE_CONNECT &&
        hello.to == (uint32_t)self->config->rank && hello.tree_id == self->config->tree_id &&
        hello.world_size == (uint32_t)self->config->world_size &&
        memcmp(hello.server_nonce, self->mine.nonce, HANDSHAKE_NONCE) == 0)
        local_rank = expected_local_rank(rank, n, hello.from);
    if (local_rank >= 0 && self->link[local_rank] == -1) {
        --*missing;
        if (peer_handshake_is_authentic(self->host, bytes, &hello)) {
            self->link[local_rank] = fd;
            memcpy(fds[local_rank], received, sizeof received);
            greeting[local_rank] = hello;
            return;
        }
        self->link[local_rank] = -2; /* same user and knows the nonce, but not the token: it will not retry */
    }
    for (int i = 0; i < SHM_FDS; i++) close(received[i]);
    close(fd);
}

/* Connections that have not identified themselves yet; the listener is the first entry. */
struct crowd {
    int n, most;
    struct pollfd polled[1 + SHM_PENDING_MAX];
    int64_t since_ns[1 + SHM_PENDING_MAX];
};

static void remove_pending(struct crowd *crowd, int i)
{
    crowd->polled[i] = crowd->polled[crowd->n];
    crowd->since_ns[i] = crowd->since_ns[crowd->n--];
}

/* Accepts a connection.  Those of other users are dropped here, which keeps the table small. */
static void accept_connection(const struct attach *self, struct crowd *crowd, int64_t now)
{
    int fd = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) crowd->most = crowd->n; /* out of descriptors */
        return;
    }
    if (!shm_is_same_user(fd)) {
        close(fd);
        return;
    }
    crowd->polled[++crowd->n] = (struct pollfd){fd, POLLIN, 0};
    crowd->since_ns[crowd->n] = now;
}

/* A full table accepts no connection until its oldest entry has timed out. */
static void expire_oldest(struct crowd *crowd, int64_t now)
{
    int oldest = 1;
    for (int i = 2; i <= crowd->n; i++)
        if (crowd->since_ns[i] < crowd->since_ns[oldest]) oldest = i;
    if (now - crowd->since_ns[oldest] < (int64_t)CALLER_MS * 1000000) return;
    close(crowd->polled[oldest].fd);
    remove_pending(crowd, oldest);
}

/* True if a member has exited: its socket no longer listens. */
static bool has_exited(const uint8_t name[HANDSHAKE_NONCE])
{
    struct sockaddr_un address;
    socklen_t bytes = shm_address(name, &address);
    int fd = shm_socket();
    bool gone = fd >= 0 && connect(fd, (struct sockaddr *)&address, bytes) != 0 && errno == ECONNREFUSED;
    if (fd >= 0) close(fd);
    return gone;
}

static void drop_exited(struct attach *self, int n, int *missing)
{
    for (int i = 1; i < n; i++) {
        if (self->link[i] != -1 || !has_exited(self->name[i])) continue;
        self->link[i] = -2;
        --*missing;
    }
}

/* Waits for the members to connect. */
static void await_members(struct attach *self, const int32_t *rank, int n, int (*fds)[SHM_FDS],
                          struct peer_handshake *greeting)
{
    struct crowd *crowd = calloc(1, sizeof *crowd); /* too large for a small stack */
    if (crowd == NULL) return;
    crowd->most = SHM_PENDING_MAX;
    int64_t now = self->host->now_ns(), end = shm_round_deadline_ns(self);
    int missing = n - 1;
    while (missing > 0 && now < end && crowd->most > 0) {
        if (crowd->n == crowd->most) expire_oldest(crowd, now);
        bool full = crowd->n == crowd->most;
        crowd->polled[0] = (struct pollfd){full ? -1 : self->listener, POLLIN, 0};
        int ready = poll(crowd->polled, 1 + (nfds_t)crowd->n, LOOK_MS);
        now = self->host->now_ns();
        if (ready == 0) drop_exited(self, n, &missing);
        if (ready <= 0) continue;
        for (int i = crowd->n; i >= 1; i--) {
            if (crowd->polled[i].revents == 0) continue;
            handle_hello(self, crowd->polled[i].fd, rank, n, fds, greeting, &missing);
            remove_pending(crowd, i);
        }
        if (crowd->polled[0].revents != 0) accept_connection(self, crowd, now);
    }
    for (int i = 1; i <= crowd->n; i++) close(crowd->polled[i].fd);
    free(crowd);
}

static void exclude(struct attach *self, int local_rank)
{
    if (self->link[local_rank] >= 0) close(self->link[local_rank]);
    self->link[local_rank] = -1;
    self->in[local_rank] = false;
}

/* Sends the list of members, with a flag byte, to all members. */
static void send_round(struct attach *self, uint8_t word)
{
    uint8_t round[1 + SHM_RANKS_MAX] = {word};
    for (int i = 0; i < self->shm->n; i++) round[1 + i] = self->in[i];
    for (int i = 1; i < self->shm->n; i++)
        if (self->link[i] >= 0 && !shm_send_packet(self->link[i], round, sizeof round, NULL, 0)) exclude(self, i);
}

/* Receives a flag byte from each member and excludes those that time out.  Returns the AND of all. */
static uint8_t receive_round(struct attach *self)
{
    int64_t end = shm_round_deadline_ns(self);
    uint8_t all = UINT8_MAX;
    for (int i = 1; i < self->shm->n; i++) {
        uint8_t word = 0;
        if (self->link[i] < 0) continue;
        if (shm_wait(self->link[i], end, self->host) && shm_receive_packet(self->link[i], &word, 1, NULL, 0))
            all &= word;
        else
            exclude(self, i);
    }
    return all;
}

static void send_ranks(struct attach *self, int local_rank, struct peer_handshake *hello)
{
    struct shm *shm = self->shm;
    uint8_t out[HANDSHAKE_BYTES + SHM_PLACE];
    struct peer_handshake answer = *hello;
    answer.kind = HANDSHAKE_ACCEPT;
    answer.from = hello->to;
    answer.to = hello->from;
    peer_handshake_sign(self->host, &answer, out);
    uint16_t place[2] = {(uint16_t)shm->n, (uint16_t)local_rank};
    memcpy(out + HANDSHAKE_BYTES, place, sizeof place);
    bool sent = shm_send_packet(self->link[local_rank], out, sizeof out, &shm->memfd, 1);
    for (int i = 0; i < shm->n && sent; i++) {
        int fds[SHM_FDS] = {shm->peer[i].doorbell_fd, shm->peer[i].liveness_fd, shm->peer[i].arena_fd};
        sent = shm_send_packet(self->link[local_rank], &shm->peer[i].rank, sizeof shm->peer[i].rank, fds, SHM_FDS);
    }
    if (!sent) exclude(self, local_rank);
}

static int fail_host(struct attach *self, const char *what)
{
    snprintf(self->why, sizeof self->why, "%s: %s", what, strerror(errno));
    return 1;
}

/* The connected members and their descriptors. */
struct arrivals {
    int fds[SHM_RANKS_MAX][SHM_FDS];
    struct peer_handshake greeting[SHM_RANKS_MAX];
    int32_t global_ranks[SHM_RANKS_MAX];
};

/* Assigns ranks to the connected members in order of rank and runs the rounds. */
static int run_rounds(struct attach *self, const int32_t *rank, int n, struct arrivals *arrivals)
{
    int(*fds)[SHM_FDS] = arrivals->fds, at = 1;
    struct peer_handshake *greeting = arrivals->greeting;
    int32_t *global_ranks = arrivals->global_ranks;
    global_ranks[0] = self->config->rank;
    await_members(self, rank, n, fds, greeting);
    for (int i = 1; i < n; i++) {
        if (self->link[i] < 0) continue;
        global_ranks[at] = rank[i];
        self->link[at] = self->link[i];
        memcpy(fds[at], fds[i], sizeof fds[i]);
        greeting[at] = greeting[i];
        at++;
    }
    for (int i = at; i < n; i++) self->link[i] = -1;
    if (at == 1) {
        snprintf(self->why, sizeof self->why, "no other rank of this host connected");
        return 1;
    }
    fds[0][0] = fcntl(self->doorbell_fd, F_DUPFD_CLOEXEC, 0);
    fds[0][1] = fcntl(self->liveness_fd, F_DUPFD_CLOEXEC, 0);
    fds[0][2] = fcntl(self->arena_fd, F_DUPFD_CLOEXEC, 0);
    bool made = shm_create(self, at, 0);
    for (int i = 0; i < at; i++) {
        if (!made) {
            for (int k = 0; k < SHM_FDS; k++) close(fds[i][k]);
            continue;
        }
        self->in[i] = true;
        self->shm->peer[i].rank = global_ranks[i];
        self->shm->peer[i].doorbell_fd = fds[i][0];
        self->shm->peer[i].liveness_fd = fds[i][1];
        self->shm->peer[i].arena_fd = fds[i][2];
    }
    if (!made) return fail_host(self, "no memory");
    self->shm->memfd = shm_segment_make(self->shm->bytes, self->shm->colls_at);
    if (self->shm->memfd < 0 || !shm_map(self->shm)) {
        bool limit = errno == EFBIG;
        snprintf(self->why, sizeof self->why, "cannot create %zu bytes of shared memory: %s%s",
                 limit ? self->shm->bytes : self->shm->colls_at, strerror(errno), limit ? " (raise ulimit -f)" : "");
        return 1;
    }
    if (at == self->config->world_size) (void)self->colls->reserve(self->shm, at);
    for (int i = 1; i < at; i++) send_ranks(self, i, &greeting[i]);
    receive_round(self);
    send_round(self, 1);
    uint8_t word = shm_probe_all(self);
    word &= receive_round(self);
    if (!shm_fix_members(self, self->in, word)) return fail_host(self, "epoll");
    send_round(self, word);
    return 0;
}

int shm_host_serve(struct attach *self, const int32_t *rank, int n)
{
    struct arrivals *arrivals = malloc(sizeof *arrivals); /* too large for a small stack */
    if (arrivals == NULL) return fail_host(self, "no memory");
    int result = run_rounds(self, rank, n, arrivals);
    free(arrivals);
    return result;
}
