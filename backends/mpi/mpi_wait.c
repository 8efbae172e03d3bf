/* Lets threads wait while nothing arrives.
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

/* True if ranks share cores.  A launcher that binds each rank to a core usually has more cores itself. */
static bool shares_cores(int local_world_size)
{
    int cores = cores_of(0), launchers = cores_of(getppid());
    return local_world_size > (cores > launchers ? cores : launchers);
}

int mpib_wait_open(struct mpib_tree *tree, const tutti_group_info *info)
{
    tree->waiter = pthread_self();
    tree->shares_cores = shares_cores(info->local_world_size > 0 ? info->local_world_size : info->world_size);
    tree->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (tree->timer >= 0) return TUTTI_OK;
    return tree->host->error(TUTTI_ERR_SYSTEM, "cannot create a timer: %s", strerror(errno));
}

void mpib_wait_close(struct mpib_tree *tree)
{
    if (tree->timer >= 0) close(tree->timer);
    if (tree->doorbell_fd >= 0) close(tree->doorbell_fd);
    free(tree->doorbells);
}

static bool is_idle(const struct mpib_tree *tree)
{
    return tree->n_pending == 0 && tree->matcher.n_receives == 0 && tree->matcher.n_probes == 0 &&
           TAILQ_EMPTY(&tree->mismatched) && TAILQ_EMPTY(&tree->deferred);
}

/* Sleeps a tenth of the quiet time so far, or all of it when idle, within bounds. */
static void set_timer(struct mpib_tree *tree, int64_t quiet_ns)
{
    bool idle = is_idle(tree), doorbell_works = tree->doorbell_fd >= 0 && tree->rings >= tree->rings_due;
    int64_t sleep_ns = idle ? quiet_ns : quiet_ns / 10, max_ns = !idle            ? SLEEP_MAX_NS
                                                                 : doorbell_works ? IDLE_MAX_NS
                                                                                  : DEAF_MAX_NS;
    sleep_ns = sleep_ns < SLEEP_MIN_NS ? SLEEP_MIN_NS : sleep_ns > max_ns ? max_ns : sleep_ns;
    struct itimerspec at = {.it_value = {.tv_sec = sleep_ns / NS_PER_S, .tv_nsec = sleep_ns % NS_PER_S}};
    timerfd_settime(tree->timer, 0, &at, NULL); /* also clears an earlier expiry */
}

int mpib_arm(void *state, int *descriptors)
{
    struct mpib_tree *tree = &((struct mpib_group *)state)->own; /* always called with the root group's state */
    int64_t now = tree->host->now_ns();
    int rings =
        mpib_doorbell_rings(tree->doorbell_fd, tree->doorbells != NULL ? tree->doorbells[tree->rank].number : 0);
    tree->rings += rings;
    if (tree->has_moved || rings > 0) {
        tree->has_moved = false;
        tree->moved_ns = now;
    }
    if (!is_idle(tree) && now - tree->moved_ns < SPIN_NS && pthread_equal(tree->waiter, pthread_self())) {
        if (tree->shares_cores || now - tree->moved_ns > YIELD_AFTER_NS) sched_yield();
        return 0;
    }
    set_timer(tree, now - tree->moved_ns);
    descriptors[0] = tree->timer;
    if (tree->doorbell_fd >= 0) descriptors[1] = tree->doorbell_fd;
    return tree->doorbell_fd >= 0 ? 2 : 1;
}
