/* Keeps ranks on their cores.  Ranks are spread evenly over the cores, and neighbors share a core.
 *
 * The kernel balances slowly and knows nothing of neighbors: a rank woken on another core may stay there for tenths of
 * a second.  An operation takes as long as the core with the most ranks.  Two ranks that exchange messages are faster
 * on one core, because they yield to each other.  Therefore a rank that yields checks now and then whether it is on its
 * preferred core, and moves back.  The thread is not bound: its mask is a single core only for a moment.  While some
 * rank sleeps, its core may be idle, so the kernel's placement is left alone, unless it put more ranks that are awake
 * on this core than on the preferred one.  A rank that is migrated again retries with growing intervals, because the
 * kernel has a reason.  See docs/benchmarks/shared-memory.md.
 *
 * Ranks that compute prefer a core that carries less than their own, if one does, also while others sleep: see
 * balance.c.
 *
 * If every rank can have a core, two of them on one core cost far more than a move, and other processes may bring them
 * together again and again.  A rank that has polled in vain, or woken another one, therefore publishes its core and
 * leaves one that it shares, at intervals that stay short.  If it may not leave, it yields, so that the other one can.
 */
#include <sched.h>

#include "tcp/shm/shm.h"

enum { GAP_NS = 1000000, GAP_MAX_NS = 1000000000, SPREAD_GAP_MAX_NS = 2000000 };

/* Returns the core of the mask that is this rank's own. */
static int home_core(const struct shm *shm, const cpu_set_t *mask)
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

/* Publishes this rank's core, and returns its number plus 1, or 0 if it is unknown.  relaxed: only a hint */
static uint32_t publish_core(struct shm *shm)
{
    uint32_t core = (uint32_t)(sched_getcpu() + 1);
    struct shm_rank *rank = shm_rank_at(shm, shm->local_rank);
    if (core != 0 && atomic_load_explicit(&rank->core, memory_order_relaxed) != core)
        atomic_store_explicit(&rank->core, core, memory_order_relaxed);
    return core;
}

static void move_to(struct shm *shm, int core, const cpu_set_t *mask)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) == 0) sched_setaffinity(0, sizeof *mask, mask);
    publish_core(shm);
}

/* Doubles the interval until the next move, up to a limit, or resets it after a long stay. */
static void back_off(struct shm *shm, int64_t now, int64_t most_ns)
{
    bool stayed = now - shm->migrate_ns > most_ns;
    shm->migrate_gap_ns = stayed ? GAP_NS : shm->migrate_gap_ns * 2;
    if (shm->migrate_gap_ns > most_ns) shm->migrate_gap_ns = most_ns;
    shm->migrate_ns = now + shm->migrate_gap_ns;
}

/* Reads the mask and finds the preferred core in it: that of the balance, or else this rank's own. */
static bool find_preferred(struct shm *shm, cpu_set_t *mask)
{
    if (sched_getaffinity(0, sizeof *mask, mask) != 0) return false;
    if (shm->moved) shm->moved = CPU_ISSET(shm->balanced_core, mask);
    shm->preferred_core = shm->moved ? shm->balanced_core : home_core(shm, mask);
    return true;
}

/* Moves to the preferred core, at most once an interval.  Returns true if it has moved. */
static bool go_back(struct shm *shm, int own, int64_t most_ns)
{
    cpu_set_t mask;
    if (own == shm->preferred_core || !find_preferred(shm, &mask)) return false;
    int64_t now = shm->config.host->now_ns();
    if (own == shm->preferred_core || now < shm->migrate_ns) return false;
    move_to(shm, shm->preferred_core, &mask);
    back_off(shm, now, most_ns);
    return true;
}

/* Returns how many other ranks that are awake were last seen on this core.  relaxed: only a hint */
static int count_others(const struct shm *shm, uint32_t core)
{
    int n = 0;
    for (int local_rank = 0; local_rank < shm->n; local_rank++) {
        const struct shm_rank *rank = shm_rank_at(shm, local_rank);
        n += local_rank != shm->local_rank && !shm->peer[local_rank].lost &&
             atomic_load_explicit(&rank->core, memory_order_relaxed) == core &&
             atomic_load_explicit(&rank->asleep, memory_order_relaxed) == 0;
    }
    return n;
}

/* Moves to another core if that improves the balance.  Returns true if it has moved. */
static bool balance(struct shm *shm)
{
    cpu_set_t mask;
    if (!find_preferred(shm, &mask)) return false;
    int home = home_core(shm, &mask), core = shm_balance(shm, shm->preferred_core, home, &mask);
    if (core == shm->preferred_core) return false;
    shm->moved = core != home;
    shm->preferred_core = shm->balanced_core = core;
    move_to(shm, core, &mask);
    return true;
}

void shm_affinity_restore(struct shm *shm)
{
    uint32_t core = publish_core(shm);
    int own = (int)core - 1;
    cpu_set_t mask;
    if (own < 0) return;
    if (shm_measure_load(shm, shm->config.host->now_ns()) && balance(shm)) return;
    if (own == shm->preferred_core || (shm->preferred_core < 0 && !find_preferred(shm, &mask))) return;
    bool is_crowded = count_others(shm, core) > count_others(shm, (uint32_t)shm->preferred_core + 1);
    if (is_crowded || all_awake(shm)) go_back(shm, own, is_crowded ? SPREAD_GAP_MAX_NS : GAP_MAX_NS);
}

void shm_affinity_spread(struct shm *shm)
{
    uint32_t core = publish_core(shm);
    if (core == 0 || count_others(shm, core) == 0) return;
    shm_settle(shm); /* the core goes to another rank for a while */
    if (!go_back(shm, (int)core - 1, SPREAD_GAP_MAX_NS)) sched_yield();
}
