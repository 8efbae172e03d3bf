/* Affinity of ranks that share cores: keeps each rank on its initial core.  Ranks are spread evenly, and neighbors
 * share a core.
 *
 * The kernel balances slowly and knows nothing of neighbors: a rank woken on another core may stay there for tenths of
 * a second.  An operation takes as long as the core with the most ranks.  Two ranks that exchange messages are faster
 * on one core, because they yield to each other.  Therefore a rank that yields checks now and then whether it is on its
 * preferred core, and moves back.  The thread is not bound: its mask is a single core only for a moment.  While some
 * rank sleeps, its core may be idle, so the kernel's placement is left alone.  A rank that is migrated again retries
 * with growing intervals, because the kernel has a reason.  See docs/benchmarks/shared-memory.md.
 */
#include <sched.h>

#include "tcp/shm/shm.h"

enum { GAP_NS = 1000000, GAP_MAX_NS = 1000000000 };

static int choose_core(const struct shm *shm, const cpu_set_t *mask)
{
    int place = shm->local_rank * CPU_COUNT(mask) / shm->n;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, mask) && place-- == 0) return core;
    return -1;
}

/* True if no other rank sleeps.  relaxed: only a hint */
static bool all_awake(const struct shm *shm)
{
    for (int local_rank = 0; local_rank < shm->n; local_rank++)
        if (local_rank != shm->local_rank && !shm->peer[local_rank].lost &&
            atomic_load_explicit(&shm_rank_at(shm, local_rank)->asleep, memory_order_relaxed) != 0)
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

/* Doubles the interval until the next move, or resets it after a long stay. */
static void back_off(struct shm *shm, int64_t now)
{
    bool stayed = now - shm->migrate_ns > GAP_MAX_NS;
    shm->migrate_gap_ns = stayed ? GAP_NS : shm->migrate_gap_ns * 2;
    if (shm->migrate_gap_ns > GAP_MAX_NS) shm->migrate_gap_ns = GAP_MAX_NS;
    shm->migrate_ns = now + shm->migrate_gap_ns;
}

void shm_affinity_restore(struct shm *shm)
{
    cpu_set_t mask;
    int own = sched_getcpu();
    if (own == shm->preferred_core || sched_getaffinity(0, sizeof mask, &mask) != 0) return;
    shm->preferred_core = choose_core(shm, &mask);
    int64_t now = shm->config.host->now_ns();
    if (own == shm->preferred_core || now < shm->migrate_ns || !all_awake(shm)) return;
    move_to(shm->preferred_core, &mask);
    back_off(shm, now);
}
