/* Keeps ranks on their cores.  Ranks are spread evenly over the cores, and neighbors share a core.
 *
 * The kernel balances slowly and knows nothing of neighbors: a rank woken on another core may stay there for tenths of
 * a second.  An operation takes as long as the core with the most ranks.  Two ranks that exchange messages are faster
 * on one core, because they yield to each other.  Therefore a rank that yields checks now and then whether it is on its
 * preferred core, and moves back.  The thread is not bound: its mask is a single core only for a moment.  While some
 * rank sleeps, its core may be idle, so the kernel's placement is left alone.  A rank that is migrated again retries
 * with growing intervals, because the kernel has a reason.  See docs/benchmarks/shared-memory.md.
 *
 * If every rank can have a core, two of them on one core cost far more than a move, and other processes may bring them
 * together again and again.  A rank that has polled in vain therefore publishes its core and leaves one that it shares,
 * at intervals that stay short.
 */
#include <sched.h>

#include "tcp/shm/shm.h"

enum { GAP_NS = 1000000, GAP_MAX_NS = 1000000000, SPREAD_GAP_MAX_NS = 2000000 };

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

/* Doubles the interval until the next move, up to a limit, or resets it after a long stay. */
static void back_off(struct shm *shm, int64_t now, int64_t most_ns)
{
    bool stayed = now - shm->migrate_ns > most_ns;
    shm->migrate_gap_ns = stayed ? GAP_NS : shm->migrate_gap_ns * 2;
    if (shm->migrate_gap_ns > most_ns) shm->migrate_gap_ns = most_ns;
    shm->migrate_ns = now + shm->migrate_gap_ns;
}

/* Moves to the preferred core, at most once an interval. */
static void go_home(struct shm *shm, int own, int64_t most_ns)
{
    cpu_set_t mask;
    if (own == shm->preferred_core || sched_getaffinity(0, sizeof mask, &mask) != 0) return;
    shm->preferred_core = choose_core(shm, &mask);
    int64_t now = shm->config.host->now_ns();
    if (own == shm->preferred_core || now < shm->migrate_ns) return;
    move_to(shm->preferred_core, &mask);
    back_off(shm, now, most_ns);
}

void shm_affinity_restore(struct shm *shm)
{
    int own = sched_getcpu();
    if (own != shm->preferred_core && all_awake(shm)) go_home(shm, own, GAP_MAX_NS);
}

/* True if another rank that is awake was last seen on this core.  relaxed: only a hint */
static bool is_shared(const struct shm *shm, uint32_t core)
{
    for (int local_rank = 0; local_rank < shm->n; local_rank++) {
        const struct shm_rank *rank = shm_rank_at(shm, local_rank);
        if (local_rank != shm->local_rank && !shm->peer[local_rank].lost &&
            atomic_load_explicit(&rank->core, memory_order_relaxed) == core &&
            atomic_load_explicit(&rank->asleep, memory_order_relaxed) == 0)
            return true;
    }
    return false;
}

void shm_affinity_spread(struct shm *shm)
{
    int own = sched_getcpu();
    if (own < 0) return;
    struct shm_rank *rank = shm_rank_at(shm, shm->local_rank);
    if (atomic_load_explicit(&rank->core, memory_order_relaxed) != (uint32_t)own + 1)
        atomic_store_explicit(&rank->core, (uint32_t)own + 1, memory_order_relaxed);
    if (is_shared(shm, (uint32_t)own + 1)) go_home(shm, own, SPREAD_GAP_MAX_NS);
}
