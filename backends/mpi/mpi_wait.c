/* What a thread does while nothing arrives.
 *
 * MPI offers no descriptor to sleep on.  A waiting caller first polls, and yields its core after KEEP_NS.  Later, and
 * on the progress thread at once, it sleeps on a timer whose period grows.  With nothing pending, a peer can only send
 * a control message, which comes with a ring of the doorbell (mpi_doorbell.c).  Polling continues at doubling intervals
 * in case a ring is lost.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "mpib.h"

enum { NS_PER_S = 1000000000, YIELD_AFTER_NS = 10000, SPIN_NS = 2000000, SLEEP_MIN_NS = 50000, SLEEP_MAX_NS = 1000000 };

/* Longest sleep with nothing pending: if the doorbell is known to work, and if not. */
#define IDLE_MAX_NS INT64_C(10000000000)
#define DEAF_MAX_NS INT64_C(250000000)

static int cores_of(pid_t pid)
{
    cpu_set_t mask;
    return sched_getaffinity(pid, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 0;
}

/* A launcher that binds each rank to a core usually has more cores itself. */
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
    return family->host->error(TUTTI_ERR_SYSTEM, "cannot create a timer: %s", strerror(errno));
}

void mpib_wait_close(struct mpib_family *family)
{
    if (family->timer >= 0) close(family->timer);
    if (family->doorbell_fd >= 0) close(family->doorbell_fd);
    free(family->doorbells);
}

static bool is_idle(const struct mpib_family *family)
{
    return family->n_pending == 0 && family->matcher.n_receives == 0 && family->matcher.n_probes == 0 &&
           TAILQ_EMPTY(&family->mismatched) && TAILQ_EMPTY(&family->deferred);
}

/* Sleeps a tenth of the quiet time so far, or all of it when idle, within bounds. */
static void set_timer(struct mpib_family *family, int64_t quiet_ns)
{
    bool idle = is_idle(family), doorbell_works = family->doorbell_fd >= 0 && family->rings >= family->rings_due;
    int64_t sleep_ns = idle ? quiet_ns : quiet_ns / 10, max_ns = !idle            ? SLEEP_MAX_NS
                                                                 : doorbell_works ? IDLE_MAX_NS
                                                                                  : DEAF_MAX_NS;
    sleep_ns = sleep_ns < SLEEP_MIN_NS ? SLEEP_MIN_NS : sleep_ns > max_ns ? max_ns : sleep_ns;
    struct itimerspec at = {.it_value = {.tv_sec = sleep_ns / NS_PER_S, .tv_nsec = sleep_ns % NS_PER_S}};
    timerfd_settime(family->timer, 0, &at, NULL); /* also clears an earlier expiry */
}

int mpib_arm(void *state, int *descriptors)
{
    struct mpib_family *family = &((struct mpib_group *)state)->own; /* always called with the root group's state */
    int64_t now = family->host->now_ns();
    int rings = mpib_doorbell_rings(family->doorbell_fd,
                                    family->doorbells != NULL ? family->doorbells[family->rank].number : 0);
    family->rings += rings;
    if (family->has_moved || rings > 0) {
        family->has_moved = false;
        family->moved_ns = now;
    }
    if (!is_idle(family) && now - family->moved_ns < SPIN_NS && pthread_equal(family->waiter, pthread_self())) {
        if (family->shares_cores || now - family->moved_ns > YIELD_AFTER_NS) sched_yield();
        return 0;
    }
    set_timer(family, now - family->moved_ns);
    descriptors[0] = family->timer;
    if (family->doorbell_fd >= 0) descriptors[1] = family->doorbell_fd;
    return family->doorbell_fd >= 0 ? 2 : 1;
}
