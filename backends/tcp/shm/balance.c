/* Spreads computing ranks over the cores that they share.
 *
 * Each rank measures its load, the share of a core that it takes without its pauses between polls.  A rank whose core
 * carries more than another one goes there, if that core carries less even with this rank's load.  As soon as the
 * balance no longer needs that, the rank goes home, next to its neighbors.  The ranks take turns to decide, so that no
 * two change places.  Graham 1969, "Bounds on Multiprocessing Timing Anomalies", says how far from the best such an
 * assignment can be.
 */
#include <time.h>

#include "tcp/shm/shm.h"

enum {
    WINDOW_NS = 50000000,
    PAUSE_NS = 3000,       /* the first guess of what a pause takes */
    WHOLE = 1024,          /* a whole core */
    GAIN_LEAST = WHOLE / 4 /* of a move */
};

/* Adds what this rank has computed since the last look.  Looks between which it took little did nothing but pause. */
static void add_work(struct shm_load *load, int64_t cpu_ns)
{
    int64_t spent_ns = cpu_ns - load->cpu_ns, pause_ns = spent_ns / SHM_RESTORE_EVERY, usual_ns = load->pause_ns;
    load->cpu_ns = cpu_ns;
    if (pause_ns < 2 * usual_ns)
        load->pause_ns = (uint32_t)((15 * usual_ns + pause_ns + 15) / 16);
    else
        load->work_ns += spent_ns - SHM_RESTORE_EVERY * usual_ns;
}

/* True if no rank has moved in the last window.  Then this one may. */
static bool take_turn(struct shm *shm, int64_t now_ns)
{
    _Atomic int64_t *moved_ns = &shm_rank_at(shm, 0)->moved_ns;
    int64_t last_ns = atomic_load_explicit(moved_ns, memory_order_relaxed);
    return now_ns - last_ns > WINDOW_NS && atomic_compare_exchange_strong_explicit(
                                               moved_ns, &last_ns, now_ns, memory_order_relaxed, memory_order_relaxed);
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
    /* relaxed: all loads of the figure are only hints */
    atomic_store_explicit(&shm_rank_at(shm, shm->local_rank)->load, (uint32_t)(load->work_ns * WHOLE / window_ns),
                          memory_order_relaxed);
    load->begin_ns = now_ns;
    load->work_ns = 0;
    return true;
}

/* Adds up what each core carries.  Others that sleep or are lost carry nothing.  Returns false if a rank has not
 * measured its load yet. */
static bool add_loads(const struct shm *shm, uint32_t loads[CPU_SETSIZE])
{
    for (int local_rank = 0; local_rank < shm->n; local_rank++) {
        const struct shm_rank *rank = shm_rank_at(shm, local_rank);
        uint32_t core = atomic_load_explicit(&rank->prefers, memory_order_relaxed);
        uint32_t load = atomic_load_explicit(&rank->load, memory_order_relaxed);
        bool rests = local_rank != shm->local_rank &&
                     (shm->peer[local_rank].lost || atomic_load_explicit(&rank->asleep, memory_order_relaxed) != 0);
        if (rests) continue;
        if (core == 0 || core > CPU_SETSIZE || load > WHOLE) return false;
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
    if (loads[home] + own <= loads[core]) return home;
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
