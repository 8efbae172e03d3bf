/* Chooses between plain and non-temporal stores for data that other ranks will read.
 *
 * A plain store takes its line away from the cores that have read it.  That costs little between hardware threads of
 * one core, more within a shared last-level cache, and much between separate caches.  A non-temporal store costs the
 * same everywhere, but readers must fetch the data from memory.  The duration of plain stores reveals the topology, so
 * each rank decides by its own measurements.  See docs/benchmarks/shared-memory.md.
 */
#include "tcp/shm/shm.h"

enum { TIMED_MIN = 16 << 10 }; /* bytes; timing a shorter copy would cost too much */

enum { PLAIN = COST_FIRST, NON_TEMPORAL = COST_SECOND };

void shm_copy_in_begin(const struct shm *shm, struct shm_copy_in *copy, struct cost_model *cost, size_t bytes)
{
    bool timed = bytes >= TIMED_MIN;
    *copy = (struct shm_copy_in){.cost = timed ? cost : NULL, .bytes = bytes};
    if (!timed) return;
    copy->non_temporal = cost_choose(cost, bytes) == NON_TEMPORAL;
    copy->begin_ns = shm->config.host->now_ns();
}

uint64_t shm_copy_in_end(const struct shm *shm, const struct shm_copy_in *copy, enum shm_cost cost_ps)
{
    if (copy->cost == NULL) return 0;
    uint64_t ns = shm_ns_since(shm->config.host, copy->begin_ns),
             cost = copy->non_temporal ? copy->bytes * cost_ps / 1000 : 0;
    cost_record(copy->cost, copy->non_temporal ? NON_TEMPORAL : PLAIN, copy->bytes, ns + cost);
    return ns;
}
