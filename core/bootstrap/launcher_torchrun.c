/* torchrun with all ranks on one host.
 *
 * MASTER_ADDR and MASTER_PORT may name the store of torchrun's own agent, which speaks torch's protocol and is not
 * used.  The ranks exchange the address over an abstract unix socket instead.  Its name derives from variables that are
 * the same on all ranks and differ from those of every other job on the host, because two agents cannot use one port.
 * Both sides check the other's user.  An abstract socket leaves nothing behind. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/env.h"
#include "base/error.h"
#include "bootstrap/launcher_exchange.h"
#include "portable/sockets.h"

enum { RETRY_US = 5000 };

static bool is_present(void)
{
    int64_t all = 0, here = -1;
    if (env_string("TORCHELASTIC_RUN_ID", NULL) == NULL || env_string("RANK", NULL) == NULL) return false;
    if (env_bool("TUTTI_STORE_HOSTED", false)) return false; /* tutti-run, started by torchrun, hosts the store */
    if (!sockets_have_abstract_names()) return false;
    return env_int("WORLD_SIZE", 0, 1, INT32_MAX, &all) == TUTTI_OK &&
           env_int("LOCAL_WORLD_SIZE", -1, 1, INT32_MAX, &here) == TUTTI_OK && all == here;
}

static socklen_t fill_address(const char *key, struct sockaddr_un *address)
{
    char *name = address->sun_path + 1; /* after a zero byte: an abstract name */
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(name, sizeof address->sun_path - 1, "tutti/%u/%s/%s/%s/%.40s", (unsigned)geteuid(),
             env_string("MASTER_PORT", "0"), env_string("TORCHELASTIC_RESTART_COUNT", "0"), key,
             env_string("TORCHELASTIC_RUN_ID", ""));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

/* True if fd becomes readable before the deadline. */
static bool wait_readable(int fd, int64_t deadline_ns)
{
    int n;
    do {
        struct pollfd polled = {fd, POLLIN, 0};
        int left = clock_left_ms(deadline_ns);
        n = poll(&polled, 1, left < 0 || left > 1000 ? 1000 : left);
    } while ((n == 0 || (n < 0 && errno == EINTR)) && clock_now_ns() < deadline_ns);
    return n > 0;
}

/* Sends text to every other rank. */
static int send_to_all(int fd, const struct sockaddr_un *address, socklen_t length, const char *text,
                       int64_t deadline_ns)
{
    int64_t size = 1, given = 1; /* this rank */
    env_int("WORLD_SIZE", 1, 1, INT32_MAX, &size);
    if (bind(fd, (const struct sockaddr *)address, length) != 0 || listen(fd, (int)size) != 0)
        return error_errno(TUTTI_ERR_STORE,
                           "torchrun: cannot open the socket on which the ranks exchange the store's address");
    while (given < size) {
        if (!wait_readable(fd, deadline_ns))
            return error_set(TUTTI_ERR_TIMEOUT,
                             "torchrun: %" PRId64 " of %" PRId64 " ranks connected to rank 0 before the timeout", given,
                             size);
        int peer = sockets_accept(fd);
        if (peer < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (peer < 0) return error_errno(TUTTI_ERR_SYSTEM, "torchrun: cannot accept a connection");
        if (sockets_peer_is_own_user(peer) && send(peer, text, strlen(text), MSG_NOSIGNAL) > 0) given++;
        close(peer);
    }
    return TUTTI_OK;
}

static int receive_text(int fd, const struct sockaddr_un *address, socklen_t length, char *text, size_t capacity,
                        int64_t deadline_ns)
{
    while (connect(fd, (const struct sockaddr *)address, length) != 0) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
            return error_errno(TUTTI_ERR_STORE, "torchrun: cannot connect to rank 0");
        if (clock_now_ns() >= deadline_ns)
            return error_set(TUTTI_ERR_TIMEOUT, "torchrun: rank 0 did not start before the timeout");
        usleep(RETRY_US);
    }
    if (!sockets_peer_is_own_user(fd))
        return error_set(TUTTI_ERR_AUTH, "torchrun: the rendezvous socket is owned by another user");
    ssize_t n = wait_readable(fd, deadline_ns) ? recv(fd, text, capacity - 1, 0) : -1;
    if (n <= 0) return error_set(TUTTI_ERR_STORE, "torchrun: rank 0 ended during the rendezvous");
    text[n] = '\0';
    return TUTTI_OK;
}

static int share_text(int rank, const char *key, char *text, size_t capacity, int64_t timeout_ms)
{
    struct sockaddr_un address;
    socklen_t length = fill_address(key, &address);
    int64_t deadline_ns = clock_deadline_ns(timeout_ms);
    int fd = sockets_open(AF_UNIX, SOCK_SEQPACKET, true);
    if (fd < 0) return error_errno(TUTTI_ERR_SYSTEM, "torchrun: cannot create a socket");
    int status = rank == 0 ? send_to_all(fd, &address, length, text, deadline_ns)
                           : receive_text(fd, &address, length, text, capacity, deadline_ns);
    close(fd);
    return status;
}

const struct launcher_exchange launcher_torchrun = {
    .name = "torchrun's variables", .present = is_present, .share = share_text};
