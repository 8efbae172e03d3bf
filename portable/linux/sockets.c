#include "portable/sockets.h"

#include <fcntl.h>
#include <linux/tcp.h> /* the C library's tcp_info lacks newer fields */
#include <netinet/in.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44 /* Linux 6.15; older kernels retransmit at growing intervals */
#endif

int sockets_open(int family, int type, bool blocks)
{
    return socket(family, type | SOCK_CLOEXEC | (blocks ? 0 : SOCK_NONBLOCK), 0);
}

int sockets_accept(int listener)
{
    return accept4(listener, NULL, NULL, SOCK_CLOEXEC);
}

int sockets_pipe(int ends[2])
{
    return pipe2(ends, O_CLOEXEC);
}

static bool read_peer(int fd, struct ucred *peer)
{
    socklen_t bytes = sizeof *peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &bytes) == 0;
}

bool sockets_peer_is_own_user(int fd)
{
    struct ucred peer;
    return read_peer(fd, &peer) && peer.uid == geteuid();
}

pid_t sockets_peer_process(int fd)
{
    struct ucred peer;
    return read_peer(fd, &peer) && peer.pid > 0 ? peer.pid : -1;
}

bool sockets_have_abstract_names(void)
{
    return true;
}

static void set_option(int fd, int level, int name, int value)
{
    if (value != 0) setsockopt(fd, level, name, &value, sizeof value);
}

void sockets_set_probes(int fd, const struct sockets_probes *probes)
{
    set_option(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, probes->retransmission_ms);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, probes->idle_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, probes->interval_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, probes->count);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, probes->lost_ms);
}

void sockets_limit_unsent(int fd, int bytes)
{
    set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes);
}

bool sockets_read_state(int fd, struct sockets_state *state)
{
    enum { ESTABLISHED = 1 }; /* TCP_ESTABLISHED of <netinet/tcp.h>, which conflicts with <linux/tcp.h> */
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    memset(&info, 0, sizeof info); /* an older kernel fills fewer fields */
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    uint32_t asked = info.tcpi_retransmits > info.tcpi_probes ? info.tcpi_retransmits : info.tcpi_probes;
    *state = (struct sockets_state){.is_established = info.tcpi_state == ESTABLISHED,
                                    .acked = info.tcpi_bytes_acked,
                                    .unacked = info.tcpi_unacked,
                                    .unsent = info.tcpi_notsent_bytes,
                                    .asked = asked,
                                    .since_last_ack_ms = info.tcpi_last_ack_recv};
    return true;
}

const char *sockets_folder(void)
{
    return "/proc/self/fd";
}

int sockets_timer(void)
{
    return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
}

void sockets_set_timer(int fd, int64_t ns)
{
    struct itimerspec at = {.it_value = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}};
    timerfd_settime(fd, 0, &at, NULL);
}
