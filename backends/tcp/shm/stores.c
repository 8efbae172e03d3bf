/* Copies of data that a peer will read, with usual or with non-temporal stores.
 *
 * If the peer has read the memory on another core, a usual store first takes the line back from there, which can take
 * many times as long as a non-temporal one.  But the peer then reads from memory what was stored non-temporally, and a
 * usual store leaves the lines in a cache that the peer may share.  So non-temporal stores pay only if they are WEIGHT
 * times as fast.
 *
 * Copies are timed (choice.h), all those to a peer as one class, and their times scaled to UNIT bytes.  A copy does not
 * wait, so the scheduler rarely disturbs its time.
 */
#include <stdlib.h>

#include "tcp/shm/stores.h"

enum { USUAL, NON_TEMPORAL };

enum {
    UNIT = 64 << 10,  /* bytes */
    SPAN = 16,        /* copies of a short span: a large message fills the FIFO with 8 */
    TIMED = 7,        /* of them, the last ones: the first find lines as the other way has left them */
    NS_MAX = 1 << 30, /* a longer time says nothing */
    WEIGHT = 8        /* times that non-temporal stores must be as fast */
};

/* Returns the way of the next copy.  Sets *timed if it is to be timed. */
static int next_way(struct shm_stores *stores, bool *timed)
{
    unsigned ways = 1u << USUAL | 1u << NON_TEMPORAL;
    if (stores->copies == 0) stores->end = SPAN;
    if (stores->copies == stores->end) stores->end += (uint64_t)choice_end_span(&stores->measured, ways, SPAN);
    uint64_t left = stores->end - stores->copies++;
    *timed = left <= TIMED;
    return stores->measured.way;
}

static void add_time(struct shm_stores *stores, int way, int64_t ns, size_t bytes)
{
    int64_t known = ns < NS_MAX ? ns : NS_MAX, weighted = way == NON_TEMPORAL ? WEIGHT * known : known;
    choice_add(&stores->measured, weighted * UNIT / (int64_t)bytes);
}

void shm_store_timed(struct shm *shm, int local_rank, void *to, const void *from, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    if (peer->stores == NULL) peer->stores = calloc(1, sizeof *peer->stores);
    if (peer->stores == NULL) { /* this copy alone is not measured */
        tutti_copy(to, from, bytes);
        return;
    }
    bool timed;
    int way = next_way(peer->stores, &timed);
    int64_t begin_ns = timed ? shm->config.host->now_ns() : 0;
    if (way == NON_TEMPORAL)
        shm_copy_non_temporal(to, from, bytes);
    else
        tutti_copy(to, from, bytes);
    if (timed) add_time(peer->stores, way, shm->config.host->now_ns() - begin_ns, bytes);
}

void shm_print_stores(const struct shm *shm, int local_rank, char *text, size_t capacity)
{
    static const char *const names[CHOICE_WAYS] = {"usual stores", "non-temporal stores (times 8)"};
    _Static_assert(WEIGHT == 8, "the names say it");
    const struct shm_stores *stores = shm->peer[local_rank].stores;
    if (stores != NULL) choice_print(&stores->measured, "measured for copies of 64 KiB", names, text, capacity);
}
