/* Connects each pair of ranks.  Ranks exchange their addresses through the store, and the higher rank connects to the
 * lower. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "my_backend.h"

enum { NONCE = 16, MAC = 32, HELLO_MS = 2000, OPEN_MS = 60000 };

struct hello {
    uint32_t rank, unused;
    uint64_t tree_id;
    uint8_t nonce[NONCE];
};

/* ---- authentication ------------------------------------------------------------------------------------------ */

static bool swap(int fd, const void *mine, void *theirs, size_t bytes)
{
    return send(fd, mine, bytes, MSG_NOSIGNAL) == (ssize_t)bytes &&
           recv(fd, theirs, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static void prove(const tutti_host *host, uint8_t mac[MAC], const struct hello *prover, const struct hello *other)
{
    struct hello both[2] = {*prover, *other};
    host->token_mac(mac, both, sizeof both);
}

/* Exchanges hellos with a peer, then proofs: each side sends a MAC of both hellos.  Returns the peer's rank, or -1. */
static int shake(const struct group *first, int fd)
{
    struct hello mine = {.rank = (uint32_t)first->info.rank, .tree_id = first->info.id}, theirs;
    uint8_t proof[MAC], wanted[MAC], got[MAC];
    struct timeval patience = {.tv_sec = HELLO_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    first->host->random(mine.nonce, sizeof mine.nonce);
    if (!swap(fd, &mine, &theirs, sizeof mine)) return -1;
    if (theirs.tree_id != mine.tree_id || theirs.rank >= (uint32_t)first->info.world_size || theirs.rank == mine.rank)
        return -1;
    prove(first->host, proof, &mine, &theirs);
    prove(first->host, wanted, &theirs, &mine);
    if (!swap(fd, proof, got, sizeof proof) || !first->host->token_equal(wanted, got)) return -1;
    return (int)theirs.rank;
}

/* ---- connections ------------------------------------------------------------------------------------------- */

static int listen_here(const struct group *first, int *fd)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    char key[32], port[16];
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&address, length) != 0 || listen(*fd, 128) != 0 ||
        getsockname(*fd, (struct sockaddr *)&address, &length) != 0)
        return first->host->error(TUTTI_ERR_SYSTEM, "sockets: cannot listen on loopback: %s", strerror(errno));
    snprintf(key, sizeof key, "sockets/%d", first->info.rank);
    snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
    return first->host->store_set(first->info.store, key, port, strlen(port));
}

static int keep(struct group *first, int rank, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)rank};
    struct timeval forever = {0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
    first->peers[rank].fd = fd;
    if (epoll_ctl(first->poll, EPOLL_CTL_ADD, fd, &event) == 0) return TUTTI_OK;
    return first->host->error(TUTTI_ERR_SYSTEM, "sockets: cannot watch the connection to rank %d: epoll: %s", rank,
                              strerror(errno));
}

static int call(struct group *first, int rank, int64_t timeout_ms)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    char key[32], port[16] = "";
    size_t bytes = 0;
    snprintf(key, sizeof key, "sockets/%d", rank);
    int status = first->host->store_get(first->info.store, key, port, sizeof port - 1, &bytes, timeout_ms);
    if (status != TUTTI_OK) return status;
    address.sin_port = htons((uint16_t)atoi(port));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        status = first->host->error(TUTTI_ERR_BACKEND, "sockets: cannot connect to rank %d at port %s of loopback: %s",
                                    rank, port, strerror(errno));
    } else if (shake(first, fd) != rank) {
        status = first->host->error(TUTTI_ERR_AUTH, "sockets: the process at port %s is not rank %d of this job", port,
                                    rank);
    }
    if (status == TUTTI_OK) return keep(first, rank, fd);
    if (fd >= 0) close(fd);
    return status;
}

/* Accepts the higher ranks in any order.  Disconnects unauthenticated peers. */
static int answer(struct group *first, int listener, int64_t timeout_ms)
{
    int64_t end = first->host->now_ns() + timeout_ms * 1000000;
    for (int left = first->info.world_size - 1 - first->info.rank; left > 0;) {
        int64_t now = first->host->now_ns();
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        if (now >= end)
            return first->host->error(TUTTI_ERR_TIMEOUT, "sockets: %d ranks have not connected within %lld ms", left,
                                      (long long)timeout_ms);
        if (poll(&ready, 1, (int)((end - now) / 1000000 + 1)) <= 0) continue;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), rank = fd >= 0 ? shake(first, fd) : -1;
        if (rank <= first->info.rank || first->peers[rank].fd >= 0) {
            if (fd >= 0) close(fd);
            continue;
        }
        int status = keep(first, rank, fd);
        if (status != TUTTI_OK) return status;
        left--;
    }
    return TUTTI_OK;
}

int mesh_open(struct group *first)
{
    int size = first->info.world_size, listener = -1;
    int64_t timeout_ms = first->info.timeout_ms > OPEN_MS ? OPEN_MS : first->info.timeout_ms;
    first->poll = epoll_create1(EPOLL_CLOEXEC);
    first->peers = calloc((size_t)size, sizeof *first->peers);
    if (first->poll < 0 || first->peers == NULL || !tutti_match_reserve(&first->matcher, malloc, free))
        return first->host->error(TUTTI_ERR_SYSTEM, "sockets: cannot create an epoll set, or no memory for %d ranks",
                                  size);
    for (int rank = 0; rank < size; rank++) {
        first->peers[rank].fd = -1;
        TAILQ_INIT(&first->peers[rank].out);
    }
    int status = listen_here(first, &listener);
    for (int rank = 0; rank < first->info.rank && status == TUTTI_OK; rank++) status = call(first, rank, timeout_ms);
    if (status == TUTTI_OK) status = answer(first, listener, timeout_ms);
    if (listener >= 0) close(listener);
    return status;
}

void mesh_close(struct group *first)
{
    for (int rank = 0; first->peers != NULL && rank < first->info.world_size; rank++) {
        struct peer *peer = &first->peers[rank];
        struct out *out;
        while ((out = TAILQ_FIRST(&peer->out)) != NULL) {
            TAILQ_REMOVE(&peer->out, out, link);
            free(out);
        }
        free(peer->in);
        if (peer->fd >= 0) close(peer->fd);
    }
    tutti_match_release(&first->matcher, free);
    if (first->poll >= 0) close(first->poll);
    free(first->peers);
    first->peers = NULL;
    first->poll = -1;
}
