/* What a thread does while nothing comes in.
 *
 * MPI has nothing to sleep on.  The program's own thread, waiting, asks again and again for a while, and offers its
 * core to others after the first 10 us; then, and on the core's thread at once, a timer's descriptor wakes whoever
 * asks: soon at first, later less often.  With nothing under way what a peer may ask or tell is a note, and with it the
 * bell is rung (mpi_bell.c); the looks that go on, at twice the distance each time, are for rings that are lost.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "mpib.h"

enum { NS_A_SECOND = 1000000000, KEEP_NS = 10000, SPIN_NS = 2000000, NAP_NS = 50000, NAP_MOST_NS = 1000000 };

/* With nothing under way: where rings are heard, and where they may not be. */
#define IDLE_MOST_NS INT64_C(10000000000)
#define DEAF_MOST_NS INT64_C(250000000)

static int cores_of(pid_t pid)
{
    cpu_set_t mask;
    return sched_getaffinity(pid, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
}

/* A launcher that has given each rank a core of its own has more of them itself. */
static bool shares_cores(int local_world_size)
{
    int cores = cores_of(0), launchers = cores_of(getppid());
    return local_world_size > (cores > launchers ? cores : launchers);
}

int mpib_wait_open(struct mpib_family *family, const tutti_group_info *info)
{
    family->waiter = pthread_self();
    family->shares_cores = shares_cores(info->local_world_size > 0 ? info->local_world_size : info->world_size);
    family->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (family->timer >= 0) return TUTTI_OK;
    return family->host->error(TUTTI_ERR_SYSTEM, "no timer for a group: %s", strerror(errno));
}

void mpib_wait_close(struct mpib_family *family)
{
    if (family->timer >= 0) close(family->timer);
    if (family->bell >= 0) close(family->bell);
    free(family->bells);
}

static bool is_idle(const struct mpib_family *family)
{
    return family->n_flights == 0 && TAILQ_EMPTY(&family->posted) && TAILQ_EMPTY(&family->found) &&
           TAILQ_EMPTY(&family->later) && TAILQ_EMPTY(&family->peeking);
}

/* A tenth of the time it has been quiet already; while idle as long again; within bounds. */
static void set_timer(struct mpib_family *family, int64_t quiet_ns)
{
    bool idle = is_idle(family), hears = family->bell >= 0 && family->rings >= family->rings_due;
    int64_t nap = idle ? quiet_ns : quiet_ns / 10, most = !idle ? NAP_MOST_NS : hears ? IDLE_MOST_NS : DEAF_MOST_NS;
    nap = nap < NAP_NS ? NAP_NS : nap > most ? most : nap;
    struct itimerspec at = {.it_value = {.tv_sec = nap / NS_A_SECOND, .tv_nsec = nap % NS_A_SECOND}};
    timerfd_settime(family->timer, 0, &at, NULL); /* also takes back that it had run out */
}

int mpib_arm(void *state, int *descriptors)
{
    struct mpib_family *family = &((struct mpib_group *)state)->own; /* always asked of the first group */
    int64_t now = family->host->now_ns();
    int rings = mpib_bell_rings(family->bell, family->bells != NULL ? family->bells[family->rank].number : 0);
    family->rings += rings;
    if (family->moved || rings > 0) {
        family->moved = false;
        family->moved_ns = now;
    }
    if (!is_idle(family) && now - family->moved_ns < SPIN_NS && pthread_equal(family->waiter, pthread_self())) {
        if (family->shares_cores || now - family->moved_ns > KEEP_NS) sched_yield();
        return 0;
    }
    set_timer(family, now - family->moved_ns);
    descriptors[0] = family->timer;
    if (family->bell >= 0) descriptors[1] = family->bell;
    return family->bell >= 0 ? 2 : 1;
}
