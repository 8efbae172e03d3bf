/* The provider keeps its sockets to itself and has no option for what we need of them: they are found by their
 * addresses among the process' descriptors. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/tcp.h> /* the C library's tcp_info is an older one */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "tcp/net/fabric_impl.h"

enum {
    STRANGER_MS = 100,      /* a connection request that stops in its middle holds the process for this long at most */
    NEAR_BYTES = 200 << 10, /* within a host, what is under way should stay in the cache */
    ASK_MS = 1000           /* how often it is asked, at most: by what is sent again, or by probes of a link at rest */
};

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44 /* Linux 6.15; where it is not known, what is lost is sent again at growing intervals */
#endif

static bool same(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family) return false;
    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *x = (const void *)a, *y = (const void *)b;
        return x->sin_port == y->sin_port && x->sin_addr.s_addr == y->sin_addr.s_addr;
    }
    const struct sockaddr_in6 *x = (const void *)a, *y = (const void *)b;
    return x->sin6_port == y->sin6_port && memcmp(&x->sin6_addr, &y->sin6_addr, sizeof x->sin6_addr) == 0;
}

static bool same_host(struct sockaddr_storage *a, struct sockaddr_storage *b)
{
    struct sockaddr_storage x = *a, y = *b;
    ((struct sockaddr_in *)(void *)&x)->sin_port = ((struct sockaddr_in *)(void *)&y)->sin_port = 0; /* IPv6 alike */
    return same(&x, &y);
}

/* The socket that listens on own, or the one between own and peer. */
static bool is_socket(int fd, const struct sockaddr_storage *own, const struct sockaddr_storage *peer)
{
    struct sockaddr_storage name;
    socklen_t bytes = sizeof name, length = sizeof(int);
    int listens = 0;
    memset(&name, 0, sizeof name);
    if (getsockname(fd, (struct sockaddr *)&name, &bytes) != 0 || !same(&name, own)) return false;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0) return false;
    if ((peer == NULL) != (listens != 0)) return false;
    bytes = sizeof name;
    return peer == NULL || (getpeername(fd, (struct sockaddr *)&name, &bytes) == 0 && same(&name, peer));
}

enum { BATCH = 256 };

static int find_in_batch(int first, int n, const struct sockaddr_storage *own, const struct sockaddr_storage *peer)
{
    struct pollfd polled[BATCH];
    for (int i = 0; i < n; i++) polled[i] = (struct pollfd){.fd = first + i};
    if (poll(polled, (nfds_t)n, 0) < 0) return -1;
    for (int i = 0; i < n; i++)
        if (!(polled[i].revents & POLLNVAL) && is_socket(first + i, own, peer)) return first + i;
    return -1;
}

/* Without /proc: poll() tells which descriptors are open, many at a time. */
static int find_by_number(const struct sockaddr_storage *own, const struct sockaddr_storage *peer)
{
    enum { MOST = 1 << 20 };
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    int end = limit.rlim_cur < MOST ? (int)limit.rlim_cur : MOST, found = -1;
    for (int first = 0; first < end && found < 0; first += BATCH)
        found = find_in_batch(first, end - first < BATCH ? end - first : BATCH, own, peer);
    return found;
}

static int find_socket(const struct sockaddr_storage *own, const struct sockaddr_storage *peer)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) return find_by_number(own, peer);
    int found = -1;
    struct dirent *entry;
    while (found < 0 && (entry = readdir(folder)) != NULL) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && *end == '\0' && is_socket((int)fd, own, peer)) found = (int)fd;
    }
    closedir(folder);
    return found;
}

static void set_option(int fd, int level, int name, int value)
{
    setsockopt(fd, level, name, &value, sizeof value);
}

/* No TCP_USER_TIMEOUT: it would also end the link to a peer that is slow in taking what was sent. */
static void tune(const struct fabric *fabric, int fd)
{
    if (fd < 0) return;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, ASK_MS);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, ASK_MS / 1000);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, ASK_MS / 1000);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, fabric->silent_ms / ASK_MS);
}

void fabric_tune_listener(const struct fabric *fabric, const struct sockaddr_storage *own)
{
    if (fabric->cq_fd >= 0) fcntl(fabric->cq_fd, F_SETFD, FD_CLOEXEC);
    int fd = find_socket(own, NULL);
    if (fd < 0) return;
    tune(fabric, fd);
    /* Accepted sockets inherit this.  The provider reads a request with blocking calls. */
    struct timeval limit = {0, STRANGER_MS * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

/* Both ends of the connection under the link.  false: there is none. */
static bool find_ends(const struct fabric_link *link, struct sockaddr_storage *own, struct sockaddr_storage *peer)
{
    size_t own_bytes = sizeof *own, peer_bytes = sizeof *peer;
    memset(own, 0, sizeof *own);
    memset(peer, 0, sizeof *peer);
    return fi_getname(&link->msg.ep->fid, own, &own_bytes) == 0 && fi_getpeer(link->msg.ep, peer, &peer_bytes) == 0;
}

bool fabric_host_answers(struct fabric_link *link)
{
    enum { ESTABLISHED = 1 }; /* TCP_ESTABLISHED of <netinet/tcp.h>, which does not go with <linux/tcp.h> */
    struct sockaddr_storage own, peer;
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    if (!find_ends(link, &own, &peer)) return false;
    int fd = find_socket(&own, &peer);
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    tune(link->fabric, fd);
    return info.tcpi_state == ESTABLISHED;
}

void fabric_tune_link(struct fabric_link *link)
{
    struct sockaddr_storage own, peer;
    link->msg.fd = -1;
    if (!find_ends(link, &own, &peer)) return;
    link->msg.fd = find_socket(&own, &peer);
    tune(link->fabric, link->msg.fd);
    const tutti_host *host = link->fabric->config.host;
    if (TUTTI_HAS(host, forked_gives_up)) host->forked_gives_up(link->msg.fd);
    if (same_host(&own, &peer)) set_option(link->msg.fd, SOL_SOCKET, SO_SNDBUF, NEAR_BYTES);
}

/* ---- silence ----------------------------------------------------------------------------------------------- */

/* The peer's host was asked and did not answer.  That of a peer which is stopped, or does not read, does.
 *
 * Either nothing at all has come from it, or what was sent is not acknowledged: where only one direction of the network
 * is lost, what the peer itself sends again still arrives.  A window that stays shut is another matter: what is not
 * sent yet is not owed. */
static bool is_silent(struct fabric_link *link, int64_t now, bool anew)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    memset(&info, 0, sizeof info); /* an older kernel fills less */
    if (link->msg.fd < 0 || getsockopt(link->msg.fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
    if (anew || info.tcpi_unacked == 0 || info.tcpi_bytes_acked != link->msg.acked) link->msg.acked_ns = now;
    link->msg.acked = info.tcpi_bytes_acked;
    bool asked = info.tcpi_retransmits > 1 || info.tcpi_probes > 1;
    bool owes = (now - link->msg.acked_ns) / 1000000 > link->fabric->silent_ms;
    return asked && (owes || info.tcpi_last_ack_recv > (uint32_t)link->fabric->silent_ms);
}

/* With a reset: the end of the connection would wait behind data that nobody acknowledges, and the peer may hear us. */
static void drop_silent(struct fabric_link *link)
{
    struct linger reset = {.l_onoff = 1};
    char why[96];
    setsockopt(link->msg.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    snprintf(why, sizeof why, "its host has not answered for %d s (TUTTI_SILENT_MS)", link->fabric->silent_ms / 1000);
    fabric_drop(link->fabric, link->rank, why, true);
}

void fabric_end_silent(struct fabric *fabric)
{
    enum { LOOK_MS = 500 };
    int64_t now = fabric->config.host->now_ns(), since_ms = (now - fabric->msg.listened_ns) / 1000000;
    if (since_ms < LOOK_MS) return;
    fabric->msg.listened_ns = now;
    bool anew = since_ms > 4 * LOOK_MS; /* this rank did not look: what is owed may be young */
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        if (link->state == FABRIC_UP && is_silent(link, now, anew)) drop_silent(link);
    }
}

/* ---- strangers --------------------------------------------------------------------------------------------- */

static bool is_accepting(const struct fabric *fabric)
{
    const struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        if (link->state == FABRIC_ACCEPTING) return true;
    }
    return false;
}

static bool is_of_link(const struct fabric *fabric, int fd)
{
    const struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        if (link->state == FABRIC_UP && link->msg.fd == fd) return true;
    }
    return false;
}

/* Ranks whose link is still to come, made or not: each may be in the midst of its handshake. */
static int count_expected(const struct fabric *fabric)
{
    int n = fabric->config.world_size - 1;
    const struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry) n -= link->state >= FABRIC_UP;
    return n;
}

/* The port of the stranger on fd; 0: it is none. */
static uint16_t stranger_port(const struct fabric *fabric, const struct sockaddr_storage *own, int fd)
{
    struct sockaddr_storage name;
    socklen_t bytes = sizeof name;
    memset(&name, 0, sizeof name);
    if (getsockname(fd, (struct sockaddr *)&name, &bytes) != 0 || !same(&name, own)) return 0;
    bytes = sizeof name;
    if (getpeername(fd, (struct sockaddr *)&name, &bytes) != 0 || is_of_link(fabric, fd)) return 0;
    return ((struct sockaddr_in *)(void *)&name)->sin_port; /* IPv6 alike */
}

/* What a look at the process' descriptors found. */
struct look {
    struct fabric_strangers fresh;   /* not seen before */
    bool is_there[FABRIC_STRANGERS]; /* those seen before, by their place */
    int n_descriptors, n_strangers;
};

static void note_stranger(const struct fabric_strangers *before, int fd, uint16_t port, struct look *look)
{
    look->n_strangers++;
    for (int i = 0; i < before->n; i++) {
        if (before->seen[i].fd != fd || before->seen[i].port != port) continue;
        look->is_there[i] = true;
        return;
    }
    struct fabric_strangers *fresh = &look->fresh;
    if (fresh->n == FABRIC_STRANGERS) return;
    fresh->seen[fresh->n].fd = fd;
    fresh->seen[fresh->n++].port = port;
}

static bool look_around(const struct fabric *fabric, const struct sockaddr_storage *own, struct look *look)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) return false;
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);
        if (end == entry->d_name || *end != '\0') continue;
        look->n_descriptors++;
        uint16_t port = stranger_port(fabric, own, (int)fd);
        if (port != 0) note_stranger(&fabric->msg.strangers, (int)fd, port, look);
    }
    closedir(folder);
    return true;
}

/* The strangers that are still there, oldest first, with how many of them were seen before. */
static struct fabric_strangers sort_by_age(const struct fabric_strangers *before, const struct look *look, int *n_old)
{
    struct fabric_strangers sorted = {.n = 0};
    for (int i = 0; i < before->n; i++)
        if (look->is_there[i]) sorted.seen[sorted.n++] = before->seen[i];
    *n_old = sorted.n;
    for (int i = 0; i < look->fresh.n && sorted.n < FABRIC_STRANGERS; i++)
        sorted.seen[sorted.n++] = look->fresh.seen[i];
    return sorted;
}

/* How many have to go.  While links are still to come, a silent connection may be that of a rank which has no processor
 * time: then only number counts, and the descriptors that are left. */
static int count_excess(const struct fabric *fabric, const struct look *look, int n_old)
{
    enum { RESERVE = 16 };
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    getrlimit(RLIMIT_NOFILE, &limit);
    int expected = count_expected(fabric);
    if (expected == 0) return n_old;
    int excess = look->n_strangers - expected - FABRIC_STRANGERS_SPARE;
    int room = limit.rlim_cur < INT32_MAX ? (int)limit.rlim_cur - RESERVE - look->n_descriptors : INT32_MAX;
    if (-room > excess) excess = -room;
    return excess > 0 ? excess : 0;
}

/* A connection that says nothing holds a descriptor for as long as it likes: the provider has no time limit.  Shut
 * down, it is closed by the provider itself at the next reading of events. */
void fabric_end_strangers(struct fabric *fabric, bool all)
{
    enum { LOOK_MS = 1000 };
    struct fabric_strangers *strangers = &fabric->msg.strangers;
    struct look look = {.n_descriptors = 0};
    struct sockaddr_storage own;
    size_t own_bytes = sizeof own;
    int64_t now = fabric->config.host->now_ns();
    if (!all && now - strangers->looked_ns < (int64_t)LOOK_MS * 1000000) return;
    memset(&own, 0, sizeof own);
    if (fabric->msg.pep == NULL || fi_getname(&fabric->msg.pep->fid, &own, &own_bytes) != 0) return;
    if (is_accepting(fabric) || !look_around(fabric, &own, &look)) return;
    int n_old = 0;
    *strangers = sort_by_age(strangers, &look, &n_old);
    strangers->looked_ns = now;
    int excess = all ? strangers->n : count_excess(fabric, &look, n_old);
    if (excess > strangers->n) excess = strangers->n;
    for (int i = 0; i < excess; i++) shutdown(strangers->seen[i].fd, SHUT_RDWR);
}
