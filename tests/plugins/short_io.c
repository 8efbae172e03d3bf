/* Library to load before a test (LD_PRELOAD).  Every third read or write of a socket or pipe moves only a part of the
 * bytes, as the kernel may do at any time, also in libuv and libfabric. */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED void short_io_arm(int on);
EXPORTED int short_io_count(void);

enum { EVERY = 3, PARTS_MAX = 64, CONNECT_BYTES = 256 };

static atomic_int armed, calls, cuts;

void short_io_arm(int on)
{
    atomic_store(&armed, on);
}

/* Returns how many calls were cut short. */
int short_io_count(void)
{
    return atomic_load(&cuts);
}

/* True if the kernel may cut a transfer on fd.  An eventfd takes eight bytes or none, and a datagram or a file is not
 * cut. */
static int is_stream(int fd)
{
    struct stat info;
    int type = 0;
    socklen_t bytes = sizeof type;
    if (fstat(fd, &info) != 0) return 0;
    if (S_ISFIFO(info.st_mode)) return 1;
    return S_ISSOCK(info.st_mode) && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM;
}

/* True if the call reads a connection request. libfabric 1.17 reads it by one call and refuses it if a part is missing.
 */
static int is_connecting(const void *caller, size_t bytes)
{
    struct dl_find_object object;
    return bytes < CONNECT_BYTES && _dl_find_object((void *)(uintptr_t)caller, &object) == 0 &&
           strstr(object.dlfo_link_map->l_name, "libfabric") != NULL;
}

/* Returns how many of the bytes to move: at least one. */
static size_t cut(const void *caller, int fd, size_t bytes)
{
    if (!atomic_load(&armed) || bytes < 2 || is_connecting(caller, bytes)) return bytes;
    unsigned call = (unsigned)atomic_fetch_add(&calls, 1);
    if (call % EVERY != 0 || !is_stream(fd)) return bytes;
    atomic_fetch_add(&cuts, 1);
    return 1 + call * 2654435761U % (bytes - 1);
}

/* Shortens a message to the bytes that cut allows.  The caller's own parts stay as they are. */
static struct msghdr shorten(const void *caller, int fd, const struct msghdr *message, struct iovec parts[PARTS_MAX])
{
    struct msghdr copy = *message;
    size_t bytes = 0, n = copy.msg_iovlen < PARTS_MAX ? copy.msg_iovlen : PARTS_MAX;
    for (size_t i = 0; i < n; i++) bytes += message->msg_iov[i].iov_len;
    if (message->msg_controllen > 0) return copy; /* descriptors go with the whole message */
    size_t left = cut(caller, fd, bytes);
    memcpy(parts, message->msg_iov, n * sizeof *parts);
    for (size_t i = 0; i < n; i++) {
        if (parts[i].iov_len > left) parts[i].iov_len = left;
        left -= parts[i].iov_len;
    }
    copy.msg_iov = parts;
    copy.msg_iovlen = n;
    return copy;
}

EXPORTED ssize_t read(int fd, void *to, size_t bytes)
{
    return syscall(SYS_read, fd, to, cut(__builtin_return_address(0), fd, bytes));
}

EXPORTED ssize_t write(int fd, const void *from, size_t bytes)
{
    return syscall(SYS_write, fd, from, cut(__builtin_return_address(0), fd, bytes));
}

EXPORTED ssize_t recv(int fd, void *to, size_t bytes, int flags)
{
    return syscall(SYS_recvfrom, fd, to,
                   (flags & MSG_WAITALL) != 0 ? bytes : cut(__builtin_return_address(0), fd, bytes), flags, NULL, NULL);
}

EXPORTED ssize_t send(int fd, const void *from, size_t bytes, int flags)
{
    return syscall(SYS_sendto, fd, from, cut(__builtin_return_address(0), fd, bytes), flags, NULL, 0);
}

EXPORTED ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    struct iovec parts[PARTS_MAX];
    if (message->msg_controllen > 0) return syscall(SYS_recvmsg, fd, message, flags);
    struct msghdr copy = shorten(__builtin_return_address(0), fd, message, parts);
    ssize_t n = syscall(SYS_recvmsg, fd, &copy, flags);
    message->msg_flags = copy.msg_flags;
    message->msg_namelen = copy.msg_namelen;
    return n;
}

EXPORTED ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct iovec parts[PARTS_MAX];
    struct msghdr copy = shorten(__builtin_return_address(0), fd, message, parts);
    return syscall(SYS_sendmsg, fd, &copy, flags);
}

EXPORTED ssize_t readv(int fd, const struct iovec *parts, int n)
{
    struct iovec copies[PARTS_MAX];
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)n};
    struct msghdr copy = shorten(__builtin_return_address(0), fd, &message, copies);
    return syscall(SYS_readv, fd, copy.msg_iov, (int)copy.msg_iovlen);
}

EXPORTED ssize_t writev(int fd, const struct iovec *parts, int n)
{
    struct iovec copies[PARTS_MAX];
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = (size_t)n};
    struct msghdr copy = shorten(__builtin_return_address(0), fd, &message, copies);
    return syscall(SYS_writev, fd, copy.msg_iov, (int)copy.msg_iovlen);
}
