/* The provider's sockets: sets FD_CLOEXEC, keepalive and retransmission, and finds hosts that do not answer.  The
 * provider has no option for these and does not expose its sockets, so they are found by their addresses among the
 * process's descriptors. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "portable/sockets.h"
#include "tcp/net/fabric_impl.h"

enum {
    BATCH = 256,                    /* descriptors in one call of poll() */
    REQUEST_MS = 100,               /* maximum time for which an incomplete connection request blocks the process */
    LOCAL_BUFFER_BYTES = 200 << 10, /* send buffer within a host, so that data under way stay in the cache */
    UNSENT_BYTES = 256 << 10,       /* of each of several rails */
    PROBE_MS = 1000 /* maximum interval between retransmissions, or between keepalive probes of an idle link */
};

bool fabric_is_same_address(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family) return false;
    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *x = (const void *)a, *y = (const void *)b;
        return x->sin_port == y->sin_port && x->sin_addr.s_addr == y->sin_addr.s_addr;
    }
    const struct sockaddr_in6 *x = (const void *)a, *y = (const void *)b;
    return x->sin6_port == y->sin6_port && memcmp(&x->sin6_addr, &y->sin6_addr, sizeof x->sin6_addr) == 0;
}

static bool is_same_host(struct sockaddr_storage *a, struct sockaddr_storage *b)
{
    struct sockaddr_storage x = *a, y = *b;
    ((struct sockaddr_in *)(void *)&x)->sin_port = ((struct sockaddr_in *)(void *)&y)->sin_port =
        0; /* sin6_port has the same offset */
    return fabric_is_same_address(&x, &y);
}

/* True if fd listens on `own` or, if `peer` is given, connects the two. */
static bool is_socket(int fd, const struct sockaddr_storage *own, const struct sockaddr_storage *peer)
{
    struct sockaddr_storage name;
    socklen_t bytes = sizeof name, length = sizeof(int);
    int listens = 0;
    memset(&name, 0, sizeof name);
    if (getsockname(fd, (struct sockaddr *)&name, &bytes) != 0 || !fabric_is_same_address(&name, own)) return false;
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0) return false;
    if ((peer == NULL) != (listens != 0)) return false;
    bytes = sizeof name;
    return peer == NULL ||
           (getpeername(fd, (struct sockaddr *)&name, &bytes) == 0 && fabric_is_same_address(&name, peer));
}

/* Visits the open ones of n descriptors from `first` on.  Returns true if a visit did. */
static bool visit_batch(int first, rlim_t n, fabric_visit *visit, void *user)
{
    struct pollfd polled[BATCH];
    for (int i = 0; i < (int)n; i++) polled[i] = (struct pollfd){.fd = first + i};
    while (poll(polled, n, 0) < 0)
        if (errno != EINTR) return false; /* a signal, while none is ready */
    for (int i = 0; i < (int)n; i++)
        if (!(polled[i].revents & POLLNVAL) && visit(user, first + i)) return true;
    return false;
}

/* Visits descriptors where no folder lists them: poll() reports which of many are open. */
static void visit_by_number(fabric_visit *visit, void *user, rlim_t most)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t end = limit.rlim_cur < most ? limit.rlim_cur : most;
    for (rlim_t first = 0; first < end; first += BATCH)
        if (visit_batch((int)first, end - first < BATCH ? end - first : BATCH, visit, user)) return;
}

void fabric_visit_descriptors(fabric_visit *visit, void *user, int most)
{
    DIR *folder = sockets_folder() != NULL ? opendir(sockets_folder()) : NULL;
    if (folder == NULL) { /* there is none, or no descriptor is free */
        visit_by_number(visit, user, (rlim_t)most);
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);
        if (end != entry->d_name && *end == '\0' && fd != dirfd(folder) && visit(user, (int)fd)) break;
    }
    closedir(folder);
}

struct wanted {
    const struct sockaddr_storage *own, *peer;
    int fd;
};

static bool is_wanted(void *user, int fd)
{
    struct wanted *wanted = user;
    if (is_socket(fd, wanted->own, wanted->peer)) wanted->fd = fd;
    return wanted->fd >= 0;
}

static int find_socket(const struct sockaddr_storage *own, const struct sockaddr_storage *peer)
{
    enum { MOST = 1 << 20 };
    struct wanted wanted = {own, peer, -1};
    fabric_visit_descriptors(is_wanted, &wanted, MOST);
    return wanted.fd;
}

static void set_option(int fd, int level, int name, int value)
{
    setsockopt(fd, level, name, &value, sizeof value);
}

/* Sets the options.  lost_ms is not among them: it would also end the link to a peer that reads slowly. */
static void tune_socket(const struct fabric *fabric, int fd)
{
    int count = fabric->silent_ms / PROBE_MS - 1; /* the first one comes after PROBE_MS of silence, and each waits */
    struct sockets_probes probes = {.idle_s = PROBE_MS / 1000,
                                    .interval_s = PROBE_MS / 1000,
                                    .count = count > 1 ? count : 1,
                                    .retransmission_ms = PROBE_MS};
    if (fd < 0) return;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    sockets_set_probes(fd, &probes);
}

int fabric_tune_listener(const struct fabric *fabric, const struct sockaddr_storage *own)
{
    if (fabric->cq_fd >= 0) fcntl(fabric->cq_fd, F_SETFD, FD_CLOEXEC);
    int fd = find_socket(own, NULL);
    if (fd < 0) return -1;
    tune_socket(fabric, fd);
    /* Accepted sockets inherit the limit.  It is needed because the provider reads a request with blocking calls. */
    struct timeval limit = {0, REQUEST_MS * 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

bool fabric_cannot_accept(const struct fabric *fabric)
{
    struct pollfd listener = {.fd = fabric->msg.listener_fd, .events = POLLIN};
    return poll(&listener, 1, 0) > 0 && (listener.revents & POLLIN) && fabric_lacks_descriptors(1);
}

bool fabric_own_name(struct fid *fid, struct sockaddr_storage *own)
{
    size_t bytes = sizeof *own;
    memset(own, 0, sizeof *own);
    return fi_getname(fid, own, &bytes) == 0;
}

/* Finds both ends of a connection.  Returns false if there is none. */
static bool find_addresses(const struct msg_rail *rail, struct sockaddr_storage *own, struct sockaddr_storage *peer)
{
    size_t bytes = sizeof *peer;
    memset(peer, 0, sizeof *peer);
    return fabric_own_name(&rail->ep->fid, own) && fi_getpeer(rail->ep, peer, &bytes) == 0;
}

bool fabric_host_answers(struct fabric_link *link)
{
    struct sockaddr_storage own, peer;
    struct sockets_state state;
    if (!find_addresses(&link->msg.first, &own, &peer)) return false;
    int fd = find_socket(&own, &peer);
    if (!sockets_read_state(fd, &state)) return false;
    tune_socket(link->fabric, fd);
    return state.is_established;
}

void fabric_tune_rail(struct fabric_link *link, struct msg_rail *rail)
{
    struct sockaddr_storage own, peer;
    rail->fd = -1;
    if (!find_addresses(rail, &own, &peer)) return;
    rail->fd = find_socket(&own, &peer);
    tune_socket(link->fabric, rail->fd);
    const tutti_host *host = link->fabric->config.host;
    if (TUTTI_HAS(host, forked_gives_up)) host->forked_gives_up(rail->fd);
    if (is_same_host(&own, &peer)) set_option(rail->fd, SOL_SOCKET, SO_SNDBUF, LOCAL_BUFFER_BYTES);
}

void fabric_limit_unsent(const struct msg_rail *rail)
{
    if (rail->fd >= 0) sockets_limit_unsent(rail->fd, UNSENT_BYTES);
}

/* ---- silence ------------------------------------------------------------------------------------------------- */

/* True if the peer's host was probed and did not answer.  If only the peer's process is stopped or does not read, its
 * host still answers.
 *
 * A host does not answer if nothing arrives from it, or if sent data are not acknowledged.  The second test is needed
 * if only one direction of the network has failed: then the peer's own retransmissions still arrive.  A closed window
 * is no sign of silence, because unsent data need no acknowledgement. */
static bool is_silent(struct msg_rail *rail, const struct sockets_state *state, int silent_ms, int64_t now,
                      bool is_late)
{
    if (is_late || state->unacked == 0 || state->acked != rail->acked) rail->acked_ns = now;
    rail->acked = state->acked;
    bool owes = (now - rail->acked_ns) / 1000000 > silent_ms;
    return state->asked > 1 && (owes || state->since_last_ack_ms > (uint32_t)silent_ms);
}

/* Drops the link and resets its connection.  A regular close would wait behind unacknowledged data. */
static void drop_silent(struct fabric_link *link, const struct msg_rail *rail)
{
    struct linger reset = {.l_onoff = 1};
    const struct fabric_rails *rails = &link->fabric->rails;
    char why[96];
    setsockopt(rail->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    snprintf(why, sizeof why, "its host has not answered%s%s for %d s (TUTTI_SILENT_MS)", rails->n > 1 ? " over " : "",
             rails->n > 1 ? rails->own[rail->index].name : "", link->fabric->silent_ms / 1000);
    fabric_drop(link->fabric, link->rank, why, true);
}

enum { CHECK_MS = 500 };

/* Sets the timer that wakes a sleeping rank, or stops it if ms is 0. */
static void set_timer(struct fabric *fabric, int64_t ms)
{
    fabric->msg.is_watching = ms > 0;
    if (fabric->msg.timer_fd >= 0) sockets_set_timer(fabric->msg.timer_fd, ms * 1000000);
}

/* The first check is soon, because most data are acknowledged by then, and otherwise their silence begins there. */
void fabric_start_watch(struct fabric *fabric)
{
    enum { FIRST_MS = 50 };
    int64_t since_ms = (fabric->config.host->now_ns() - fabric->msg.silence_checked_ns) / 1000000;
    int64_t due_ms = CHECK_MS - since_ms; /* an earlier check would be left out */
    set_timer(fabric, due_ms > FIRST_MS ? due_ms : FIRST_MS);
}

/* Checks one connection.  Returns true if it may still turn out that the peer's host is silent: the kernel's keepalive
 * finds this only of connections without data under way. */
static bool check_rail(struct fabric_link *link, struct msg_rail *rail, int64_t now, bool is_late)
{
    struct sockets_state state;
    if (!sockets_read_state(rail->fd, &state)) return false;
    if (!is_silent(rail, &state, link->fabric->silent_ms, now, is_late)) return state.unacked > 0 || state.unsent > 0;
    drop_silent(link, rail);
    return false;
}

void fabric_end_silent(struct fabric *fabric)
{
    int64_t now = fabric->config.host->now_ns(), since_ms = (now - fabric->msg.silence_checked_ns) / 1000000;
    if (since_ms < CHECK_MS) return;
    fabric->msg.silence_checked_ns = now;
    bool is_late = since_ms > 4 * CHECK_MS; /* the last check was long ago, so unacknowledged data may be recent */
    bool goes_on = false;
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        for (int i = 0; i < fabric->rails.n && link->state == FABRIC_UP; i++)
            if (link->msg.up & 1 << i) goes_on |= check_rail(link, fabric_rail(link, i), now, is_late);
    }
    goes_on |= fabric->connecting > 0 || fabric->msg.rails_connecting > 0; /* for their deadlines */
    set_timer(fabric, goes_on ? CHECK_MS : 0);
}
