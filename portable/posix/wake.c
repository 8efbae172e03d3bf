/* POSIX has no descriptor that a process can make readable by itself and read again, other than a socket that is
 * connected to itself.  The kernel drops datagrams of others to a connected one. */
#include "portable/wake.h"

#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <unistd.h>

#include "portable/sockets.h"

static bool connect_to_itself(int fd)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof own;
    return bind(fd, (struct sockaddr *)&own, bytes) == 0 && getsockname(fd, (struct sockaddr *)&own, &bytes) == 0 &&
           connect(fd, (struct sockaddr *)&own, bytes) == 0;
}

int wake_open(bool sent)
{
    int fd = sockets_open(AF_INET, SOCK_DGRAM, false);
    if (fd >= 0 && connect_to_itself(fd)) {
        if (sent) wake_send(fd);
        return fd;
    }
    int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    return -1;
}

void wake_send(int fd)
{
    char one = 1;
    ssize_t sent = send(fd, &one, sizeof one, MSG_NOSIGNAL);
    (void)sent; /* a full buffer is readable */
}

/* Takes all, as an eventfd does. */
void wake_take(int fd)
{
    char taken;
    while (recv(fd, &taken, sizeof taken, 0) > 0) continue;
}
