/* Probes distinguish an exited peer from a slow one.  Datagram endpoints do not report that the receiver does not
 * exist, so each process has a plain TCP listener, which the kernel closes when the process exits.
 *
 * Nothing is sent over these connections; they are closed as soon as they are accepted.  Another host's refusal may
 * come from a firewall, so it counts only after the peer has been silent for RDM_TICKS. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "portable/sockets.h"
#include "tcp/net/rdm.h"

enum { BACKLOG = 64 };

static int new_socket(const struct wire_address *address)
{
    return sockets_open(address->family == 4 ? AF_INET : AF_INET6, SOCK_STREAM, false);
}

static bool start_listening(int fd, struct wire_address *own)
{
    struct sockaddr_storage address;
    socklen_t bytes = fabric_to_sockaddr(own, &address);
    if (bind(fd, (struct sockaddr *)&address, bytes) != 0 || listen(fd, BACKLOG) != 0) return false;
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) != 0) return false;
    own->port = ntohs(own->family == 4 ? ((struct sockaddr_in *)(void *)&address)->sin_port
                                       : ((struct sockaddr_in6 *)(void *)&address)->sin6_port);
    return true;
}

void rdm_open_probes(struct fabric *fabric, struct wire_address *own)
{
    own->port = 0;
    fabric->rdm.listener = new_socket(own);
    if (fabric->rdm.listener >= 0 && start_listening(fabric->rdm.listener, own)) return;
    TUTTI_LOG_AS(fabric->config.host, "net", 2,
                 "tcp: cannot listen for probes on %s (%s); peers notice this rank's exit only by its silence",
                 fabric->rails.own[0].text, strerror(errno));
    rdm_close_probes(fabric);
}

void rdm_close_probes(struct fabric *fabric)
{
    if (fabric->rdm.listener >= 0) close(fabric->rdm.listener);
    fabric->rdm.listener = -1;
}

void rdm_accept_probes(struct fabric *fabric)
{
    for (int i = 0, fd; fabric->rdm.listener >= 0 && i < BACKLOG; i++) {
        if ((fd = sockets_accept(fabric->rdm.listener)) < 0) return;
        close(fd);
    }
}

void rdm_end_probe(struct fabric_link *link)
{
    if (link->rdm.probe >= 0) close(link->rdm.probe);
    link->rdm.probe = -1;
}

static void start_probe(struct fabric_link *link)
{
    struct sockaddr_storage address;
    const struct wire_address *peer = &link->fabric->addresses[link->rank];
    socklen_t bytes = fabric_to_sockaddr(peer, &address);
    link->rdm.probe = new_socket(peer);
    if (link->rdm.probe < 0) return;
    if (connect(link->rdm.probe, (struct sockaddr *)&address, bytes) == 0 || errno == EINPROGRESS) return;
    link->rdm.refused = errno == ECONNREFUSED;
    rdm_end_probe(link);
}

static void finish_probe(struct fabric_link *link)
{
    struct pollfd polled = {link->rdm.probe, POLLOUT, 0};
    int error = 0;
    socklen_t bytes = sizeof error;
    if (link->rdm.probe < 0 || poll(&polled, 1, 0) <= 0) return; /* no probe, or no answer yet */
    getsockopt(link->rdm.probe, SOL_SOCKET, SO_ERROR, &error, &bytes);
    link->rdm.refused = error == ECONNREFUSED;
    rdm_end_probe(link);
}

bool rdm_has_exited(struct fabric_link *link)
{
    const struct wire_address *peer = &link->fabric->addresses[link->rank];
    if (peer->port == 0) return false; /* the peer has no listener */
    if (link->rdm.probe < 0) start_probe(link);
    finish_probe(link);
    bool own_host = memcmp(peer->ip, link->fabric->address.ip, sizeof peer->ip) == 0;
    return link->rdm.refused && (own_host || link->rdm.silent_ticks >= RDM_TICKS);
}
