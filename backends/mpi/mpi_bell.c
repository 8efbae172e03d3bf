/* Waking a rank that sleeps.
 *
 * MPI has nothing to sleep on, so a rank with nothing under way would have to ask it again and again whether a peer has
 * sent a note.  Instead it has a datagram socket, whose descriptor it sleeps on, and whoever sends it a note through
 * MPI rings there.  On one host that is a unix socket with a name that the kernel picks; else UDP, at all addresses the
 * rank has, as it does not know by which one a peer gets there.
 *
 * A ring says nothing, but who knows where and with which number to ring is of the job: strangers who find the socket
 * cost the time it takes to read what they send.  Rings that are lost, or that cannot be, leave the rank to the looks
 * that it takes by itself now and then (mpi_wait.c).
 */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "mpib.h"

/* Strangers' datagrams read at once, lest they keep us; as many rings as a unix socket holds. */
enum { READ_MOST = 64, TRY_MOST = 256 };

/* ---- where ---------------------------------------------------------------------------------------------------------
 */

/* A unix socket's abstract name, or a port at all of the host's addresses. */
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
        if (fd >= 0) close(fd); /* a host without IPv6 */
        fd = socket(AF_INET, type, 0);
        if (fd >= 0 && bind(fd, (struct sockaddr *)&any4, sizeof any4) == 0) return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}

static void add_address(struct mpib_bell *bell, const void *address, socklen_t length)
{
    if (bell->n == MPIB_BELL_ADDRESSES || length > sizeof bell->address[0].bytes) return;
    memcpy(bell->address[bell->n].bytes, address, length);
    bell->address[bell->n++].length = length;
}

/* An interface's address in the form that the socket takes, which is IPv6 unless the host has none. */
static void add_interface(struct mpib_bell *bell, const struct sockaddr *address, sa_family_t form, in_port_t port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = port};
    struct sockaddr_in four;
    if (address->sa_family == AF_INET) {
        memcpy(&four, address, sizeof four);
        four.sin_port = port;
        memcpy(six.sin6_addr.s6_addr, "\0\0\0\0\0\0\0\0\0\0\377\377", 12);
        memcpy(six.sin6_addr.s6_addr + 12, &four.sin_addr, sizeof four.sin_addr);
        if (form == AF_INET) add_address(bell, &four, sizeof four);
    } else {
        memcpy(&six, address, sizeof six);
        six.sin6_port = port;
        if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) return; /* it means another interface there */
    }
    if (form == AF_INET6) add_address(bell, &six, sizeof six);
}

static void add_interfaces(struct mpib_bell *bell, sa_family_t form, in_port_t port)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0) return;
    for (const struct ifaddrs *one = list; one != NULL; one = one->ifa_next) {
        if (one->ifa_addr == NULL || (one->ifa_flags & (IFF_UP | IFF_LOOPBACK)) != IFF_UP) continue;
        if (one->ifa_addr->sa_family == AF_INET || one->ifa_addr->sa_family == AF_INET6)
            add_interface(bell, one->ifa_addr, form, port);
    }
    freeifaddrs(list);
}

int mpib_bell_open(const tutti_host *host, bool one_host, struct mpib_bell *bell)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    memset(bell, 0, sizeof *bell);
    int fd = open_socket(one_host);
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&name, &length) != 0) {
        if (fd >= 0) close(fd);
        return -1;
    }
    host->random(&bell->number, sizeof bell->number);
    if (one_host)
        add_address(bell, &name, length);
    else /* the port is at the same place in both forms */
        add_interfaces(bell, name.ss_family, ((struct sockaddr_in *)&name)->sin_port);
    return fd;
}

/* ---- ringing -------------------------------------------------------------------------------------------------------
 */

void mpib_bell_ring(int fd, const struct mpib_bell *bell)
{
    for (uint32_t i = 0; fd >= 0 && i < bell->n && i < MPIB_BELL_ADDRESSES; i++) {
        struct sockaddr_storage to = {0};
        memcpy(&to, bell->address[i].bytes, sizeof bell->address[i].bytes);
        /* Where it is full it has been rung already and not been heard yet. */
        ssize_t sent = sendto(fd, &bell->number, sizeof bell->number, MSG_NOSIGNAL, (struct sockaddr *)&to,
                              bell->address[i].length);
        (void)sent;
    }
}

int mpib_bell_rings(int fd, uint64_t number)
{
    uint64_t got;
    int rings = 0;
    for (int i = 0; fd >= 0 && i < READ_MOST; i++) {
        ssize_t n = recv(fd, &got, sizeof got, MSG_TRUNC);
        if (n < 0) break;
        rings += n == (ssize_t)sizeof got && got == number;
    }
    return rings;
}

/* Those at twice the distance each time: few, and some of them on other hosts. */
void mpib_bells_try(struct mpib_family *family, int world_size)
{
    for (int distance = 1; distance < world_size && distance < TRY_MOST; distance *= 2) {
        mpib_bell_ring(family->bell, &family->bells[(family->rank + distance) % world_size]);
        family->rings_due++;
    }
}
