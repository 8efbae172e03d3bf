/* Ranks that share cores, kept where they started: evenly spread, neighbours together.
 *
 * The kernel spreads what runs, but slowly, and knows nothing of neighbours: a rank that has been woken on another core
 * may stay there for tenths of a second.  An operation takes as long as the core with the most ranks (a barrier of 8
 * ranks on 2 cores 8.2 us where five are on one of them, 4.3 where four are), and two ranks that talk to each other are
 * faster on one core, as each gives it to the other (a round trip of 8 KiB of 4 ranks 2.5 us, or 4.9).  So a rank that
 * gives its core away looks now and then whether it is at home, and goes there.  Nothing is bound: the thread's mask is
 * one core for a moment.  Where some rank sleeps its core may be free, and the kernel is left alone.  Whoever is moved
 * again is so for a reason that only the kernel knows, and tries it ever less often.
 */
#include <sched.h>

#include "shm.h"

enum { GAP_NS = 1000000, GAP_MOST_NS = 1000000000 };

static int home_of(const struct shm *shm, const cpu_set_t *mask)
{
    int place = shm->seat * CPU_COUNT(mask) / shm->n;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, mask) && place-- == 0) return core;
    return -1;
}

/* relaxed: it is a hint */
static bool all_run(const struct shm *shm)
{
    for (int seat = 0; seat < shm->n; seat++)
        if (seat != shm->seat && !shm->peer[seat].lost &&
            atomic_load_explicit(&shm_seat_at(shm, seat)->asleep, memory_order_relaxed) != 0)
            return false;
    return true;
}

static void move_to(int core, const cpu_set_t *mask)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0) sched_setaffinity(0, sizeof *mask, mask);
}

/* Not at once again; at once where it has stayed for long. */
static void wait_longer(struct shm *shm, int64_t now)
{
    bool stayed = now - shm->spread_ns > GAP_MOST_NS;
    shm->spread_gap_ns = stayed ? GAP_NS : shm->spread_gap_ns * 2;
    if (shm->spread_gap_ns > GAP_MOST_NS) shm->spread_gap_ns = GAP_MOST_NS;
    shm->spread_ns = now + shm->spread_gap_ns;
}

void shm_spread(struct shm *shm)
{
    cpu_set_t mask;
    int own = sched_getcpu();
    if (own == shm->home || sched_getaffinity(0, sizeof mask, &mask) != 0) return;
    shm->home = home_of(shm, &mask);
    int64_t now = shm->config.host->now_ns();
    if (own == shm->home || now < shm->spread_ns || !all_run(shm)) return;
    move_to(shm->home, &mask);
    wait_longer(shm, now);
}
