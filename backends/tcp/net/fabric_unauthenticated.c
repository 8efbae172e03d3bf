/* Connections to the listener that have not authenticated.  The provider has no time limit for them, and each holds a
 * descriptor, so there must be few. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "tcp/net/fabric_impl.h"

static bool is_accepting(const struct fabric *fabric)
{
    const struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        if (link->state == FABRIC_ACCEPTING) return true;
        for (int i = 1; i < fabric->rails.n && link->msg.further != NULL; i++)
            if (link->msg.further[i - 1].state == FABRIC_ACCEPTING) return true;
    }
    return false;
}

static bool belongs_to_link(const struct fabric *fabric, int fd)
{
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        for (int i = 0; i < fabric->rails.n && link->state == FABRIC_UP; i++)
            if ((link->msg.up & 1 << i) && fabric_rail(link, i)->fd == fd) return true;
    }
    return false;
}

/* The addresses of the listeners. */
struct listeners {
    int n;
    struct sockaddr_storage own[FABRIC_RAILS];
};

static struct listeners find_listeners(const struct fabric *fabric)
{
    struct listeners listeners = {.n = 0};
    for (int i = 0; i < fabric->rails.n; i++) {
        struct fid_pep *pep = fabric->msg.pep[i];
        if (pep != NULL && fabric_own_name(&pep->fid, &listeners.own[listeners.n])) listeners.n++;
    }
    return listeners;
}

static bool is_listener(const struct listeners *listeners, const struct sockaddr_storage *name)
{
    for (int i = 0; i < listeners->n; i++)
        if (fabric_is_same_address(name, &listeners->own[i])) return true;
    return false;
}

/* Returns the number of links that are not up yet.  Each of these ranks may be in its handshake. */
static int count_expected(const struct fabric *fabric)
{
    int n = fabric->config.world_size - 1;
    const struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry) n -= link->state >= FABRIC_UP;
    return n;
}

/* Returns the peer's port if fd is an unauthenticated connection, or 0. */
static uint16_t unauthenticated_port(const struct fabric *fabric, const struct listeners *listeners, int fd)
{
    struct sockaddr_storage name;
    socklen_t bytes = sizeof name;
    memset(&name, 0, sizeof name);
    if (getsockname(fd, (struct sockaddr *)&name, &bytes) != 0 || !is_listener(listeners, &name)) return 0;
    bytes = sizeof name;
    if (getpeername(fd, (struct sockaddr *)&name, &bytes) != 0 || belongs_to_link(fabric, fd)) return 0;
    return ((struct sockaddr_in *)(void *)&name)->sin_port; /* sin6_port has the same offset */
}

/* Result of a scan of the process's descriptors. */
struct scan {
    const struct fabric *fabric;
    const struct listeners *listeners;
    struct fabric_unauthenticated fresh;       /* connections not seen before */
    bool is_there[FABRIC_UNAUTHENTICATED_MAX]; /* by index of the connections seen before: true if still open */
    int n_descriptors, n_unauthenticated;
};

static void add_unauthenticated(const struct fabric_unauthenticated *before, int fd, uint16_t port, struct scan *scan)
{
    scan->n_unauthenticated++;
    for (int i = 0; i < before->n; i++) {
        if (before->seen[i].fd != fd || before->seen[i].port != port) continue;
        scan->is_there[i] = true;
        return;
    }
    struct fabric_unauthenticated *fresh = &scan->fresh;
    if (fresh->n == FABRIC_UNAUTHENTICATED_MAX) return;
    fresh->seen[fresh->n].fd = fd;
    fresh->seen[fresh->n++].port = port;
}

static bool scan_descriptor(void *user, int fd)
{
    struct scan *scan = user;
    scan->n_descriptors++;
    uint16_t port = unauthenticated_port(scan->fabric, scan->listeners, fd);
    if (port != 0) add_unauthenticated(&scan->fabric->msg.unauthenticated, fd, port, scan);
    return false;
}

/* Returns the open connections, oldest first.  *n_old: how many of them were seen before. */
static struct fabric_unauthenticated sort_by_age(const struct fabric_unauthenticated *before, const struct scan *scan,
                                                 int *n_old)
{
    struct fabric_unauthenticated sorted = {.n = 0};
    for (int i = 0; i < before->n; i++)
        if (scan->is_there[i]) sorted.seen[sorted.n++] = before->seen[i];
    *n_old = sorted.n;
    for (int i = 0; i < scan->fresh.n && sorted.n < FABRIC_UNAUTHENTICATED_MAX; i++)
        sorted.seen[sorted.n++] = scan->fresh.seen[i];
    return sorted;
}

/* Returns how many connections to end.  While some links are not up, a silent connection may belong to a rank that gets
 * no processor time, so only the number of connections and of free descriptors counts. */
static int count_excess(const struct fabric *fabric, const struct scan *scan, int n_old)
{
    enum { RESERVE = 16 };
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    getrlimit(RLIMIT_NOFILE, &limit);
    int expected = count_expected(fabric);
    if (expected == 0) return n_old;
    int excess = scan->n_unauthenticated - expected - FABRIC_UNAUTHENTICATED_SPARE;
    int spare = limit.rlim_cur < INT32_MAX ? (int)limit.rlim_cur - RESERVE - scan->n_descriptors : INT32_MAX;
    if (-spare > excess) excess = -spare;
    return excess > 0 ? excess : 0;
}

/* Shuts connections down.  The provider closes them when it next reads events. */
void fabric_end_unauthenticated(struct fabric *fabric, bool all)
{
    enum { CHECK_MS = 1000, MOST = 1 << 16 };
    struct fabric_unauthenticated *unauthenticated = &fabric->msg.unauthenticated;
    int64_t now = fabric->config.host->now_ns();
    if (!all && now - unauthenticated->checked_ns < (int64_t)CHECK_MS * 1000000) return;
    struct listeners listeners = find_listeners(fabric);
    if (listeners.n == 0 || is_accepting(fabric)) return;
    struct scan scan = {.fabric = fabric, .listeners = &listeners};
    fabric_visit_descriptors(scan_descriptor, &scan, MOST);
    int n_old = 0;
    *unauthenticated = sort_by_age(unauthenticated, &scan, &n_old);
    unauthenticated->checked_ns = now;
    int excess = all ? unauthenticated->n : count_excess(fabric, &scan, n_old);
    if (excess > unauthenticated->n) excess = unauthenticated->n;
    if (excess > 0) unauthenticated->ended_ns = now;
    for (int i = 0; i < excess; i++) shutdown(unauthenticated->seen[i].fd, SHUT_RDWR);
}
