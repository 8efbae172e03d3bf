/* Ranks that share cores, spread evenly over them.
 *
 * The kernel spreads what runs, but slowly: a rank that has been woken on another core may stay there for tenths of a
 * second, and an operation takes as long as the core with the most ranks: a barrier of 8 ranks on 2 cores 8.2 us where
 * five are on one of them, 4.3 where four are.  So a rank that gives its core away says in its seat which one it has.
 * Now and then it counts, and of the ranks on a core that has two more than another one the last moves there.  Nothing
 * is bound: the thread's mask is one core for a moment.  Whoever is moved back is so for a reason that only the kernel
 * knows, and tries it ever less often.
 */
#include <sched.h>
#include <string.h>

#include "shm.h"

enum { GAP_NS = 1000000, GAP_MOST_NS = 1000000000 };

/* How many ranks have each core.  False: it is not known of all, or a later one than this shares the core with it. */
static bool count(const struct shm *shm, int own, uint8_t per_core[CPU_SETSIZE])
{
    memset(per_core, 0, CPU_SETSIZE);
    for (int seat = 0; seat < shm->n; seat++) {
        /* relaxed: it is a hint */
        uint32_t core = atomic_load_explicit(&shm_seat_at(shm, seat)->core, memory_order_relaxed);
        if (seat != shm->seat && shm->peer[seat].lost) continue;
        if (core == 0 || core > CPU_SETSIZE || (seat > shm->seat && (int)core - 1 == own)) return false;
        per_core[core - 1]++;
    }
    return true;
}

/* One that has two ranks less than the own one, or -1. */
static int find_core(const struct shm *shm, int own, const cpu_set_t *mask)
{
    uint8_t per_core[CPU_SETSIZE];
    int least = own;
    if (!count(shm, own, per_core)) return -1;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, mask) && per_core[core] < per_core[least]) least = core;
    return per_core[own] - per_core[least] >= 2 ? least : -1;
}

static bool move_to(int core, const cpu_set_t *mask)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    return sched_setaffinity(0, sizeof one, &one) == 0 && sched_setaffinity(0, sizeof *mask, mask) == 0;
}

static void say_core(const struct shm *shm, int core)
{
    struct shm_seat *mine = shm_seat_at(shm, shm->seat);
    if (atomic_load_explicit(&mine->core, memory_order_relaxed) == (uint32_t)core + 1) return;
    atomic_store_explicit(&mine->core, (uint32_t)core + 1, memory_order_relaxed);
}

void shm_spread(struct shm *shm)
{
    cpu_set_t mask;
    int own = sched_getcpu();
    if (own < 0 || own >= CPU_SETSIZE) return;
    say_core(shm, own);
    int64_t now = shm->config.host->now_ns();
    if (now < shm->spread_ns || sched_getaffinity(0, sizeof mask, &mask) != 0) return;
    int core = find_core(shm, own, &mask);
    if (core < 0 || !move_to(core, &mask)) return;
    say_core(shm, core);
    shm->spread_gap_ns = shm->spread_gap_ns == 0 ? GAP_NS : shm->spread_gap_ns * 2;
    if (shm->spread_gap_ns > GAP_MOST_NS) shm->spread_gap_ns = GAP_MOST_NS;
    shm->spread_ns = now + shm->spread_gap_ns;
}
