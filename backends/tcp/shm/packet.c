/* Sends and receives packets with descriptors over unix sockets. */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tcp/shm/attach.h"

socklen_t shm_address(const uint8_t name[HANDSHAKE_NONCE], struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    char *text = address->sun_path + 1; /* a leading zero byte makes the name abstract */
    memcpy(text, "tutti-", 6);
    for (int i = 0; i < HANDSHAKE_NONCE; i++) snprintf(text + 6 + 2 * i, 3, "%02x", name[i]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + 6 + 2 * HANDSHAKE_NONCE);
}

int shm_socket(void)
{
    return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

bool shm_is_same_user(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

bool shm_wait(int fd, int64_t end_ns, const tutti_host *host)
{
    for (;;) {
        struct pollfd one = {fd, POLLIN, 0};
        int64_t left = (end_ns - host->now_ns()) / 1000000;
        if (left < 0) return false;
        int n = poll(&one, 1, (int)left + 1);
        if (n > 0) return true;
        if (n < 0 && errno != EINTR) return false;
    }
}

bool shm_send_packet(int fd, const void *data, size_t bytes, const int *fds, int n_fds)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(SHM_FDS * sizeof(int))];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)data, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (n_fds > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)n_fds * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN((size_t)n_fds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, (size_t)n_fds * sizeof(int));
    }
    for (int tries = 0; tries < 1000; tries++) {
        ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (sent >= 0) return (size_t)sent == bytes;
        if (errno != EAGAIN && errno != EINTR && errno != ETOOMANYREFS) return false;
        /* ETOOMANYREFS: too many of this user's descriptors are in flight, so wait for time rather than for space. */
        struct pollfd one = {errno == ETOOMANYREFS ? -1 : fd, POLLOUT, 0};
        poll(&one, 1, 10);
    }
    return false;
}

bool shm_receive_packet(int fd, void *data, size_t bytes, int *fds, int n_fds)
{
    enum {
        CONTROL_BYTES = CMSG_SPACE(SHM_FDS * sizeof(int)),
        FOUND_MAX = (CONTROL_BYTES - CMSG_LEN(0)) / sizeof(int) /* may exceed SHM_FDS, because the size is rounded up */
    };
    union {
        struct cmsghdr header;
        char bytes[CONTROL_BYTES];
    } control = {0};
    char rest[1];
    struct iovec part[2] = {{data, bytes}, {rest, 1}};
    struct msghdr message = {
        .msg_iov = part, .msg_iovlen = 2, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    int found[FOUND_MAX], n = 0;
    struct cmsghdr *header = got >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        n = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        if (n > FOUND_MAX) n = FOUND_MAX;
        memcpy(found, CMSG_DATA(header), (size_t)n * sizeof(int));
    }
    if (got == (ssize_t)bytes && n == n_fds && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        if (n > 0) memcpy(fds, found, (size_t)n * sizeof(int));
        return true;
    }
    for (int i = 0; i < n; i++) close(found[i]);
    if (got >= 0) errno = message.msg_flags & MSG_CTRUNC ? EMFILE : EPROTO;
    return false;
}
