/* torchrun, where all ranks are on one host.
 *
 * What it names with MASTER_ADDR and MASTER_PORT may be the store of its own agent, which speaks torch's protocol; that
 * is left alone.  The ranks meet at a unix socket without a file instead, whose name follows from the variables that
 * are the same on all of them and unlike those of any other job on the host: two agents cannot hold one port.  Both
 * sides look at the other's user, and whatever happens nothing of it is left behind.
 */
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

enum { AGAIN_US = 5000 };

static bool torchrun_present(void)
{
    int64_t all = 0, here = -1;
    if (env_string("TORCHELASTIC_RUN_ID", NULL) == NULL || env_string("RANK", NULL) == NULL) return false;
    if (env_bool("TUTTI_STORE_HOSTED", false)) return false; /* a tutti-run inside of it */
    return env_int("WORLD_SIZE", 0, 1, INT32_MAX, &all) == TUTTI_OK &&
           env_int("LOCAL_WORLD_SIZE", -1, 1, INT32_MAX, &here) == TUTTI_OK && all == here;
}

static socklen_t fill_address(const char *key, struct sockaddr_un *address)
{
    char *name = address->sun_path + 1; /* behind a zero byte: no file */
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(name, sizeof address->sun_path - 1, "tutti/%u/%s/%s/%s/%.40s", (unsigned)geteuid(),
             env_string("MASTER_PORT", "0"), env_string("TORCHELASTIC_RESTART_COUNT", "0"), key,
             env_string("TORCHELASTIC_RUN_ID", ""));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

static bool is_own_user(int fd)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

/* Whether fd becomes readable in time. */
static bool await(int fd, int64_t deadline_ns)
{
    int n;
    do {
        struct pollfd polled = {fd, POLLIN, 0};
        int left = clock_left_ms(deadline_ns);
        n = poll(&polled, 1, left < 0 || left > 1000 ? 1000 : left);
    } while ((n == 0 || (n < 0 && errno == EINTR)) && clock_now_ns() < deadline_ns);
    return n > 0;
}

/* Hands text to each of the others. */
static int give(int fd, const struct sockaddr_un *address, socklen_t length, const char *text, int64_t deadline_ns)
{
    int64_t size = 1, given = 1; /* this rank has it */
    env_int("WORLD_SIZE", 1, 1, INT32_MAX, &size);
    if (bind(fd, (const struct sockaddr *)address, length) != 0 || listen(fd, (int)size) != 0)
        return error_errno(TUTTI_ERR_STORE, "torchrun: the ranks' meeting point cannot be opened");
    while (given < size) {
        if (!await(fd, deadline_ns))
            return error_set(TUTTI_ERR_TIMEOUT, "torchrun: %" PRId64 " of %" PRId64 " ranks came to rank 0", given,
                             size);
        int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (peer < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
        if (peer < 0) return error_errno(TUTTI_ERR_SYSTEM, "torchrun: accept");
        if (is_own_user(peer) && send(peer, text, strlen(text), MSG_NOSIGNAL) > 0) given++;
        close(peer);
    }
    return TUTTI_OK;
}

static int take(int fd, const struct sockaddr_un *address, socklen_t length, char *text, size_t capacity,
                int64_t deadline_ns)
{
    while (connect(fd, (const struct sockaddr *)address, length) != 0) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
            return error_errno(TUTTI_ERR_STORE, "torchrun: rank 0 cannot be reached");
        if (clock_now_ns() >= deadline_ns) return error_set(TUTTI_ERR_TIMEOUT, "torchrun: rank 0 did not come");
        usleep(AGAIN_US);
    }
    if (!is_own_user(fd))
        return error_set(TUTTI_ERR_AUTH, "torchrun: another user of this host sits where the ranks are to meet");
    ssize_t n = await(fd, deadline_ns) ? recv(fd, text, capacity - 1, 0) : -1;
    if (n <= 0) return error_set(TUTTI_ERR_STORE, "torchrun: rank 0 went away while the ranks met");
    text[n] = '\0';
    return TUTTI_OK;
}

static int torchrun_share(int rank, const char *key, char *text, size_t capacity, int64_t timeout_ms)
{
    struct sockaddr_un address;
    socklen_t length = fill_address(key, &address);
    int64_t deadline_ns = clock_deadline_ns(timeout_ms);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return error_errno(TUTTI_ERR_SYSTEM, "torchrun: no socket");
    int status = rank == 0 ? give(fd, &address, length, text, deadline_ns)
                           : take(fd, &address, length, text, capacity, deadline_ns);
    close(fd);
    return status;
}

const struct launcher_exchange launcher_torchrun = {
    .name = "torchrun's variables", .present = torchrun_present, .share = torchrun_share};
