#include "store/socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/forked.h"
#include "portable/sockets.h"

enum {
    SOCKET_LOST_MS = 6000,
    SOCKET_NEXT_MS = 2000 /* time per address of a host name that has several */
};

int socket_poll(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd entry = {.fd = fd, .events = events};
        int left = clock_left_ms(deadline_ns);
        int ready = poll(&entry, 1, left);
        if (ready > 0) return 1;
        if (ready < 0 && errno != EINTR) return -1;
        if (ready == 0 && clock_left_ms(deadline_ns) == 0) return 0;
    }
}

/* Sets options by which the loss of the server's host is detected within SOCKET_LOST_MS, both while waiting and while
 * sending. */
static void set_options(int fd)
{
    static const struct sockets_probes probes = {.idle_s = 2, .interval_s = 1, .count = 4, .lost_ms = SOCKET_LOST_MS};
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockets_set_probes(fd, &probes);
}

/* True if the socket is connected to itself: connecting to an unused ephemeral port of this host may select the same
 * port (simultaneous open).  Such a socket is reset on close, so that the port becomes free. */
static bool is_self_connected(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_bytes = sizeof here, there_bytes = sizeof there;
    if (getsockname(fd, (struct sockaddr *)&here, &here_bytes) != 0 ||
        getpeername(fd, (struct sockaddr *)&there, &there_bytes) != 0 || here_bytes != there_bytes ||
        memcmp(&here, &there, here_bytes) != 0)
        return false;
    struct linger reset = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    return true;
}

void socket_close(int fd)
{
    forked_forgets(fd);
    close(fd);
}

/* Returns a connected socket, or -1 with errno set. */
static int connect_address(const struct addrinfo *address, int64_t deadline_ns)
{
    int fd = sockets_open(address->ai_family, SOCK_STREAM, false);
    if (fd < 0) return -1;
    forked_gives_up(fd); /* before connecting: another thread may fork meanwhile */
    int error = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        socklen_t bytes = sizeof error;
        int ready = socket_poll(fd, POLLOUT, deadline_ns);
        if (ready <= 0)
            error = ready == 0 ? ETIMEDOUT : errno;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
            error = errno;
    }
    if (error == 0 && is_self_connected(fd)) error = ECONNREFUSED;
    if (error == 0) {
        set_options(fd);
        return fd;
    }
    socket_close(fd);
    errno = error;
    return -1;
}

bool socket_is_transient(int error)
{
    return error == ECONNREFUSED || error == ECONNRESET || error == ETIMEDOUT || error == EHOSTUNREACH ||
           error == ENETUNREACH || error == EHOSTDOWN || error == ENETDOWN || error == EADDRNOTAVAIL || error == EAGAIN;
}

int socket_connect(const struct addrinfo *list, int64_t deadline_ns)
{
    int fd = -1;
    for (const struct addrinfo *at = list; at != NULL && fd < 0; at = at->ai_next) {
        int64_t next_ns = clock_deadline_ns(SOCKET_NEXT_MS);
        fd = connect_address(at, list->ai_next != NULL && next_ns < deadline_ns ? next_ns : deadline_ns);
    }
    return fd;
}
