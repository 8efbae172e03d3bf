/* Chooses between plain and non-temporal stores for data that other ranks will read.
 *
 * A plain store takes its line away from the cores that have read it, which costs little between hardware threads of
 * one core, more within a shared last-level cache, and much between separate ones.  A non-temporal store costs the same
 * everywhere, but readers must fetch the data from memory.  The duration of plain stores reveals the topology, so each
 * rank decides by its own measurements.  See docs/benchmarks/shared-memory.md.
 */
#include "tcp/shm/shm.h"

enum { TIMED_LEAST = 16 << 10 }; /* bytes; shorter copies are not worth timing */

enum { PLAIN = PACE_ONE, PAST = PACE_OTHER };

void shm_put_begin(const struct shm *shm, struct shm_put *put, struct cost_model *pace, size_t bytes)
{
    bool timed = bytes >= TIMED_LEAST;
    *put = (struct shm_put){.pace = timed ? pace : NULL, .bytes = bytes};
    if (!timed) return;
    put->past = cost_choose(pace, bytes) == PAST;
    put->begin_ns = shm->config.host->now_ns();
}

uint64_t shm_put_end(const struct shm *shm, const struct shm_put *put, enum shm_cost cost_ps)
{
    if (put->pace == NULL) return 0;
    uint64_t ns = shm_ns_since(shm->config.host, put->begin_ns), cost = put->past ? put->bytes * cost_ps / 1000 : 0;
    cost_learn(put->pace, put->past ? PAST : PLAIN, put->bytes, ns + cost);
    return ns;
}
