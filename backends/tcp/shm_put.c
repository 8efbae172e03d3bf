/* Writing what other ranks will read: with plain stores, or past the caches.
 *
 * A plain store takes its line away from the cores that have read it.  Where two are threads of one core a byte takes
 * 20 ps, where they share the last cache only 80 to 140, and where they do not share even that 400, as if each line
 * were waited for.  A streaming store takes 40 at all times; but who reads it finds it in the memory, which takes 55 to
 * 75 ps a byte for 20 (50 where no cache is shared).  What plain stores take says which times these are, so each rank
 * goes by what its own have taken: it is nobody else's business.
 *
 * us, plain and past the caches, on two cores that share nothing: all_to_all of 512 KiB with 4 ranks 270 / 82,
 * broadcast of 4 MiB with 8 ranks 2710 / 960; where they share the last cache, 60 / 110 and 1500 / 1340.
 */
#include "shm.h"

enum { TIMED_LEAST = 16 << 10 }; /* bytes; less says little */

enum { PLAIN = PACE_ONE, PAST = PACE_OTHER };

void shm_put_begin(const struct shm *shm, struct shm_put *put, struct pace *pace, size_t bytes)
{
    bool timed = bytes >= TIMED_LEAST;
    *put = (struct shm_put){.pace = timed ? pace : NULL, .bytes = bytes};
    if (!timed) return;
    put->past = pace_choose(pace, bytes) == PAST;
    put->begin_ns = shm->config.host->now_ns();
}

uint64_t shm_put_end(const struct shm *shm, const struct shm_put *put, enum shm_cost cost_ps)
{
    if (put->pace == NULL) return 0;
    uint64_t ns = shm_ns_since(shm->config.host, put->begin_ns), cost = put->past ? put->bytes * cost_ps / 1000 : 0;
    pace_learn(put->pace, put->past ? PAST : PLAIN, put->bytes, ns + cost);
    return ns;
}
