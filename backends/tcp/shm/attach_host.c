/* The host rank's side of attaching: see attach.c. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp/shm/attach.h"

enum {
    IDENTIFY_MS = 1000, /* time for a connecting member to identify itself on a busy machine */
    CHECK_MS = 50       /* interval of the liveness checks while no member connects */
};

static int expected_local_rank(const int32_t *rank, int n, uint32_t from)
{
    for (int i = 1; i < n; i++)
        if ((uint32_t)rank[i] == from) return i;
    return -1;
}

/* Handles the first packet of a connection.  A member that authenticates gets its link; any other is dropped. */
static void handle_hello(struct attach *self, int fd, const int32_t *rank, int n, int (*fds)[SHM_FDS],
                         struct peer_handshake *handshake, int *missing)
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
            handshake[local_rank] = hello;
            return;
        }
        self->link[local_rank] = -2; /* it knows the nonce but not the token, and will not retry */
    }
    for (int i = 0; i < SHM_FDS; i++) close(received[i]);
    close(fd);
}

/* Connections that have not identified themselves yet.  Entry 0 of `polled` is the listener. */
struct pending {
    int n, capacity;
    struct pollfd polled[1 + SHM_PENDING_MAX];
    int64_t since_ns[1 + SHM_PENDING_MAX];
};

static void remove_pending(struct pending *pending, int i)
{
    pending->polled[i] = pending->polled[pending->n];
    pending->since_ns[i] = pending->since_ns[pending->n--];
}

/* Accepts a connection.  Drops those of other users at once, which keeps the table small. */
static void accept_connection(const struct attach *self, struct pending *pending, int64_t now)
{
    int fd = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            pending->capacity = pending->n; /* out of descriptors: accept no more */
        return;
    }
    if (!shm_is_same_user(fd)) {
        close(fd);
        return;
    }
    pending->polled[++pending->n] = (struct pollfd){fd, POLLIN, 0};
    pending->since_ns[pending->n] = now;
}

/* Drops the oldest connection if its time is over.  Until then a full table accepts no other. */
static void expire_oldest(struct pending *pending, int64_t now)
{
    int oldest = 1;
    for (int i = 2; i <= pending->n; i++)
        if (pending->since_ns[i] < pending->since_ns[oldest]) oldest = i;
    if (now - pending->since_ns[oldest] < (int64_t)IDENTIFY_MS * 1000000) return;
    close(pending->polled[oldest].fd);
    remove_pending(pending, oldest);
}

/* True if a member has exited: connecting to its socket is refused. */
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

/* Waits until the members have connected, or have exited, or the round is over. */
static void await_members(struct attach *self, const int32_t *rank, int n, int (*fds)[SHM_FDS],
                          struct peer_handshake *handshake)
{
    struct pending *pending = calloc(1, sizeof *pending); /* too large for a small stack */
    if (pending == NULL) return;
    pending->capacity = SHM_PENDING_MAX;
    int64_t now = self->host->now_ns(), end = shm_round_deadline_ns(self);
    int missing = n - 1;
    while (missing > 0 && now < end && pending->capacity > 0) {
        if (pending->n == pending->capacity) expire_oldest(pending, now);
        bool full = pending->n == pending->capacity;
        pending->polled[0] = (struct pollfd){full ? -1 : self->listener, POLLIN, 0};
        int ready = poll(pending->polled, 1 + (nfds_t)pending->n, CHECK_MS);
        now = self->host->now_ns();
        if (ready == 0) drop_exited(self, n, &missing);
        if (ready <= 0) continue;
        for (int i = pending->n; i >= 1; i--) {
            if (pending->polled[i].revents == 0) continue;
            handle_hello(self, pending->polled[i].fd, rank, n, fds, handshake, &missing);
            remove_pending(pending, i);
        }
        if (pending->polled[0].revents != 0) accept_connection(self, pending, now);
    }
    for (int i = 1; i <= pending->n; i++) close(pending->polled[i].fd);
    free(pending);
}

static void exclude(struct attach *self, int local_rank)
{
    if (self->link[local_rank] >= 0) close(self->link[local_rank]);
    self->link[local_rank] = -1;
    self->in[local_rank] = false;
}

/* Sends a flag byte and the list of members to all members. */
static void send_round(struct attach *self, uint8_t word)
{
    uint8_t round[1 + SHM_RANKS_MAX] = {word};
    for (int i = 0; i < self->shm->n; i++) round[1 + i] = self->in[i];
    for (int i = 1; i < self->shm->n; i++)
        if (self->link[i] >= 0 && !shm_send_packet(self->link[i], round, sizeof round, NULL, 0)) exclude(self, i);
}

/* Receives a flag byte from each member.  Excludes members that time out.  Returns the AND of all bytes. */
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

/* The connected members: their descriptors, handshakes and global ranks. */
struct arrivals {
    int fds[SHM_RANKS_MAX][SHM_FDS];
    struct peer_handshake handshake[SHM_RANKS_MAX];
    int32_t global_ranks[SHM_RANKS_MAX];
};

/* Assigns local ranks to the connected members in order of rank, then runs the rounds. */
static int run_rounds(struct attach *self, const int32_t *rank, int n, struct arrivals *arrivals)
{
    int(*fds)[SHM_FDS] = arrivals->fds, at = 1;
    struct peer_handshake *handshake = arrivals->handshake;
    int32_t *global_ranks = arrivals->global_ranks;
    global_ranks[0] = self->config->rank;
    await_members(self, rank, n, fds, handshake);
    for (int i = 1; i < n; i++) {
        if (self->link[i] < 0) continue;
        global_ranks[at] = rank[i];
        self->link[at] = self->link[i];
        memcpy(fds[at], fds[i], sizeof fds[i]);
        handshake[at] = handshake[i];
        at++;
    }
    for (int i = at; i < n; i++) self->link[i] = -1;
    if (at == 1) {
        snprintf(self->why, sizeof self->why, "no other rank of this host has connected in time");
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
    self->shm->memfd = shm_segment_make(self->shm->bytes, self->shm->bytes_at);
    if (self->shm->memfd < 0 || !shm_map(self->shm)) {
        bool limit = errno == EFBIG;
        snprintf(self->why, sizeof self->why, "cannot create %zu bytes of shared memory: %s%s",
                 limit ? self->shm->bytes : self->shm->bytes_at, strerror(errno), limit ? " (raise ulimit -f)" : "");
        return 1;
    }
    if (at == self->config->world_size) (void)self->colls->reserve(self->shm, at);
    for (int i = 1; i < at; i++) send_ranks(self, i, &handshake[i]);
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
