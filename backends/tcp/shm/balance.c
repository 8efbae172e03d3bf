/* Spreads computing ranks over the cores that they share.
 *
 * Each rank measures its load, the share of a core that it takes without its pauses between polls.  A rank prefers
 * another core if that carries less even with this rank's load, by a quarter of a core and in two windows in a row.  It
 * prefers its own core again, next to its neighbors, once that would not carry more than the one it is on.  The two
 * rules exclude each other, so ranks whose loads do not change do not move forever.  The ranks take turns, so that no
 * two change places.
 */
#include <time.h>

#include "tcp/shm/shm.h"

enum {
    WINDOW_NS = 50000000,
    OLD_NS = 1000000000,     /* loads that were measured longer ago say nothing */
    PAUSE_NS = 3000,         /* the most that a pause may seem to take */
    WHOLE = 1024,            /* a whole core */
    GAIN_LEAST = WHOLE / 4,  /* what a core must carry less to be preferred */
    LOAD_LEAST = WHOLE / 32, /* ranks that carry less stay next to their neighbors */
};

/* Adds what this rank has computed since the last look.  A pause takes what it takes when there is little else. */
static void add_work(struct shm_load *load, int64_t cpu_ns)
{
    int64_t spent_ns = cpu_ns - load->cpu_ns, pause_ns = spent_ns / SHM_RESTORE_EVERY, usual_ns = load->pause_ns;
    load->cpu_ns = cpu_ns;
    if (pause_ns < 2 * usual_ns) usual_ns = (15 * usual_ns + pause_ns + 15) / 16;
    if (usual_ns > PAUSE_NS) usual_ns = PAUSE_NS;
    load->pause_ns = (uint32_t)usual_ns;
    spent_ns -= SHM_RESTORE_EVERY * usual_ns;
    if (spent_ns > 0) load->work_ns += spent_ns;
}

/* True if no rank has moved in the last window.  Then this one may. */
static bool take_turn(struct shm *shm, int64_t now_ns)
{
    _Atomic int64_t *moved_ns = &shm_rank_at(shm, 0)->moved_ns;
    int64_t last_ns = atomic_load_explicit(moved_ns, memory_order_relaxed);
    if (last_ns > now_ns - WINDOW_NS && last_ns <= now_ns + WINDOW_NS) return false; /* a later time is none */
    return atomic_compare_exchange_strong_explicit(moved_ns, &last_ns, now_ns, memory_order_relaxed,
                                                   memory_order_relaxed);
}

bool shm_measure_load(struct shm *shm, int64_t now_ns)
{
    struct shm_load *load = &shm->load;
    struct timespec cpu;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu) != 0) return false;
    int64_t cpu_ns = cpu.tv_sec * INT64_C(1000000000) + cpu.tv_nsec;
    if (load->begin_ns == 0) {
        *load = (struct shm_load){.begin_ns = now_ns, .cpu_ns = cpu_ns, .pause_ns = PAUSE_NS, .better = -1};
        return false;
    }
    add_work(load, cpu_ns);
    int64_t window_ns = now_ns - load->begin_ns;
    if (window_ns < WINDOW_NS) return false;
    if (load->work_ns > window_ns) load->work_ns = window_ns; /* several threads compute, and this is one of them */
    struct shm_rank *own = shm_rank_at(shm, shm->local_rank);
    /* relaxed: the figures are only hints */
    atomic_store_explicit(&own->load, (uint32_t)(load->work_ns * WHOLE / window_ns), memory_order_relaxed);
    atomic_store_explicit(&own->load_ns, now_ns, memory_order_relaxed);
    load->begin_ns = now_ns;
    load->work_ns = 0;
    return true;
}

/* Adds up what each core carries.  Returns false if that is not known: a rank has not measured its load yet, or ranks
 * are threads of one process, whose time is measured. */
static bool add_loads(const struct shm *shm, uint32_t loads[CPU_SETSIZE])
{
    const struct shm_rank *own = shm_rank_at(shm, shm->local_rank);
    for (int local_rank = 0; local_rank < shm->n; local_rank++) {
        const struct shm_rank *rank = shm_rank_at(shm, local_rank);
        uint32_t core = atomic_load_explicit(&rank->prefers, memory_order_relaxed);
        uint32_t load = atomic_load_explicit(&rank->load, memory_order_relaxed);
        int64_t load_ns = atomic_load_explicit(&rank->load_ns, memory_order_relaxed);
        if (core == 0 || core > CPU_SETSIZE || load > WHOLE || (rank != own && rank->pid == own->pid)) return false;
        if (rank == own || (!shm->peer[local_rank].lost && load_ns > shm->load.begin_ns - OLD_NS))
            loads[core - 1] += load;
    }
    return true;
}

/* Returns the best core of the mask for this rank. */
static int find_core(const struct shm *shm, int core, int home, const cpu_set_t *mask)
{
    uint32_t loads[CPU_SETSIZE] = {0};
    uint32_t own = atomic_load_explicit(&shm_rank_at(shm, shm->local_rank)->load, memory_order_relaxed);
    if (!add_loads(shm, loads)) return core;
    if (own < LOAD_LEAST || loads[home] + own <= loads[core]) return home;
    int best = core;
    for (int other = 0; other < CPU_SETSIZE; other++)
        if (CPU_ISSET(other, mask) && loads[other] < loads[best]) best = other;
    return loads[best] + own + GAIN_LEAST < loads[core] ? best : core;
}

int shm_balance(struct shm *shm, int core, int home, const cpu_set_t *mask)
{
    _Atomic uint32_t *prefers = &shm_rank_at(shm, shm->local_rank)->prefers;
    atomic_store_explicit(prefers, (uint32_t)core + 1, memory_order_relaxed);
    int best = find_core(shm, core, home, mask), last = shm->load.better;
    shm->load.better = best;
    if (best == core || best != last || !take_turn(shm, shm->load.begin_ns)) return core;
    atomic_store_explicit(prefers, (uint32_t)best + 1, memory_order_relaxed);
    return best;
}
