/* Sleeping.  A timer beside the provider's descriptor wakes the rank for the next tick.  It also wakes the rank for
 * naps, if the provider had no space for a message or has no descriptor. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "portable/sockets.h"
#include "tcp/net/rdm.h"

enum { NAP_MIN_US = 50, NAP_MAX_US = 5000, POLLS_PER_CHECK = 32 };

static int64_t tick_ns(const struct fabric *fabric)
{
    return (int64_t)fabric->silent_ms * 1000000 / RDM_TICKS;
}

int rdm_open_timer(struct fabric *fabric)
{
    fabric->rdm.timer_fd = sockets_timer();
    if (fabric->rdm.timer_fd < 0)
        return fabric->config.host->error(
            TUTTI_ERR_SYSTEM, "datagram endpoints need a timer, and the system has none: %s", strerror(errno));
    fabric->rdm.tick_ns = fabric->config.host->now_ns() + tick_ns(fabric);
    return TUTTI_OK;
}

/* True if a tick has passed.  All ticks that pass while this rank does not poll count as one. */
bool rdm_is_tick(struct fabric *fabric)
{
    if (!fabric->rdm.slept && ++fabric->polls % POLLS_PER_CHECK != 0) return false;
    int64_t now = fabric->config.host->now_ns();
    fabric->rdm.slept = false;
    if (now < fabric->rdm.tick_ns) return false;
    fabric->rdm.tick_ns = now + tick_ns(fabric);
    return true;
}

/* Sets the timer for the end of a nap (a short sleep) or for the next tick, which makes its descriptor unreadable. */
static void set_timer(struct fabric *fabric, bool naps)
{
    int64_t left = fabric->rdm.tick_ns - fabric->config.host->now_ns();
    if (fabric->rdm.nap_us < NAP_MIN_US) fabric->rdm.nap_us = NAP_MIN_US;
    int64_t nap = (int64_t)fabric->rdm.nap_us * 1000;
    if (naps && nap < left) left = nap;
    if (left < 1) left = 1;
    sockets_set_timer(fabric->rdm.timer_fd, left);
    if (fabric->rdm.nap_us < NAP_MAX_US) fabric->rdm.nap_us *= 2;
    fabric->rdm.timed_ns = fabric->rdm.tick_ns;
    fabric->rdm.naps = naps;
}

int rdm_arm(struct fabric *fabric, int *descriptors)
{
    const struct rdm_reader *reader = &fabric->rdm.reader;
    bool reads = !TAILQ_EMPTY(&fabric->rdm.readings) && reader->cq != NULL;
    struct fid *waited[2] = {&fabric->cq->fid, reads ? &reader->cq->fid : NULL};
    int n = 0;
    bool again = fabric->rdm.slept; /* no progress call since the last arm, so the timer still runs */
    fabric->rdm.slept = true;
    errno = 0;
    if (fabric->cq_fd >= 0) {
        if (fi_trywait(fabric->fabric, waited, 1 + reads) != 0) return 0;
        descriptors[n++] = fabric->cq_fd;
        if (reads) descriptors[n++] = reader->cq_fd;
    }
    bool naps = fabric->cq_fd < 0 || fabric->rdm.retry;
    bool stale = fabric->rdm.timed_ns != fabric->rdm.tick_ns || (!again && (naps || fabric->rdm.naps));
    if (stale) set_timer(fabric, naps);
    descriptors[n++] = fabric->rdm.timer_fd;
    return n;
}
