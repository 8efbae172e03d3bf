/* Doorbells: wake a rank that sleeps.
 *
 * MPI offers no descriptor to sleep on, so an idle rank would have to poll MPI for control messages.  Instead each rank
 * sleeps on a datagram socket, and a peer that sends it a control message through MPI also rings this doorbell.  If all
 * ranks share a host it is a unix socket with an abstract name chosen by the kernel.  Otherwise it is a UDP socket
 * bound to all addresses of the host, because a rank does not know which of them a peer can reach.
 *
 * A ring carries no data.  Only ranks of the job know the address and the number that a valid ring contains.  An
 * unauthenticated peer that finds the socket costs the time to read its datagrams.  If rings are lost or impossible,
 * the rank still polls MPI at growing intervals (mpi_wait.c).
 */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mpib.h"

/* READ_MAX bounds the time spent on datagrams of unauthenticated peers; TRY_MAX is the queue length of a unix
 * socket. */
enum { READ_MAX = 64, TRY_MAX = 256 };

/* ---- opening -------------------------------------------------------------------------------------------------- */

/* Binds an abstract unix socket, or a UDP port on all addresses of the host. */
static int open_socket(bool one_host)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any4 = {.sin_family = AF_INET};
    const int type = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    int fd = socket(one_host ? AF_UNIX : AF_INET6, type, 0), off = 0;
    if (one_host) {
        if (fd >= 0 && bind(fd, (struct sockaddr *)&local, sizeof local.sun_family) == 0) return fd;
    } else {
        if (fd >= 0 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
            bind(fd, (struct sockaddr *)&any, sizeof any) == 0)
            return fd;
        if (fd >= 0) close(fd); /* IPv6 is not available */
        fd = socket(AF_INET, type, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&any4, sizeof any4) == 0) return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}

static void append_address(struct mpib_doorbell *doorbell, const void *address, socklen_t length)
{
    if (doorbell->n == MPIB_DOORBELL_ADDRESSES || length > sizeof doorbell->address[0].bytes) return;
    memcpy(doorbell->address[doorbell->n].bytes, address, length);
    doorbell->address[doorbell->n++].length = length;
}

/* Adds an interface's address in the socket's address family: IPv6 unless the host has none. */
static void append_interface(struct mpib_doorbell *doorbell, const struct sockaddr *address, sa_family_t family,
                             in_port_t port)
{
    struct sockaddr_in6 address6 = {.sin6_family = AF_INET6, .sin6_port = port};
    struct sockaddr_in address4;
    if (address->sa_family == AF_INET) {
        memcpy(&address4, address, sizeof address4);
        address4.sin_port = port;
        memcpy(address6.sin6_addr.s6_addr, "\0\0\0\0\0\0\0\0\0\0\377\377", 12);
        memcpy(address6.sin6_addr.s6_addr + 12, &address4.sin_addr, sizeof address4.sin_addr);
        if (family == AF_INET) append_address(doorbell, &address4, sizeof address4);
    } else {
        memcpy(&address6, address, sizeof address6);
        address6.sin6_port = port;
        if (IN6_IS_ADDR_LINKLOCAL(&address6.sin6_addr)) return; /* link-local: not valid on another host */
    }
    if (family == AF_INET6) append_address(doorbell, &address6, sizeof address6);
}

static void append_interfaces(struct mpib_doorbell *doorbell, sa_family_t family, in_port_t port)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *entry = list; entry != NULL; entry = entry->ifa_next) {
        if (entry->ifa_addr == NULL || (entry->ifa_flags & (IFF_UP | IFF_LOOPBACK)) != IFF_UP) continue;
        if (entry->ifa_addr->sa_family == AF_INET || entry->ifa_addr->sa_family == AF_INET6)
            append_interface(doorbell, entry->ifa_addr, family, port);
    }
    freeifaddrs(list);
}

int mpib_doorbell_open(const tutti_host *host, bool one_host, struct mpib_doorbell *doorbell)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    memset(doorbell, 0, sizeof *doorbell);
    int fd = open_socket(one_host);
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&name, &length) != 0) {
        if (fd >= 0) close(fd);
        return -1;
    }
    host->random(&doorbell->number, sizeof doorbell->number);
    if (one_host)
        append_address(doorbell, &name, length);
    else /* sin_port and sin6_port are at the same offset */
        append_interfaces(doorbell, name.ss_family, ((struct sockaddr_in *)&name)->sin_port);
    return fd;
}

/* ---- ringing -------------------------------------------------------------------------------------------------- */

void mpib_doorbell_ring(int fd, const struct mpib_doorbell *doorbell)
{
    for (uint32_t i = 0; fd >= 0 && i < doorbell->n && i < MPIB_DOORBELL_ADDRESSES; i++) {
        struct sockaddr_storage to = {0};
        memcpy(&to, doorbell->address[i].bytes, sizeof doorbell->address[i].bytes);
        /* A full queue means that earlier rings have not been read yet; one more is not needed. */
        ssize_t sent = sendto(fd, &doorbell->number, sizeof doorbell->number, MSG_NOSIGNAL, (struct sockaddr *)&to,
                              doorbell->address[i].length);
        (void)sent;
    }
}

int mpib_doorbell_rings(int fd, uint64_t number)
{
    uint64_t number_read;
    int rings = 0;
    for (int i = 0; fd >= 0 && i < READ_MAX; i++) {
        ssize_t n = recv(fd, &number_read, sizeof number_read, MSG_TRUNC);
        if (n < 0) break;
        rings += n == (ssize_t)sizeof number_read && number_read == number;
    }
    return rings;
}

/* Rings the ranks at distances 1, 2, 4, ...: few ranks, some of them on other hosts. */
void mpib_doorbells_probe(struct mpib_tree *tree, int world_size)
{
    for (int distance = 1; distance < world_size && distance < TRY_MAX; distance *= 2) {
        mpib_doorbell_ring(tree->doorbell_fd, &tree->doorbells[(tree->rank + distance) % world_size]);
        tree->rings_due++;
    }
}
