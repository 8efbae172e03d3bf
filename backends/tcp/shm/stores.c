/* Copies of data that a peer will read, with usual or with non-temporal stores.
 *
 * If the peer has read the memory on another core, a usual store first takes the line back from there, which can take
 * many times as long as a non-temporal one.  But the peer then reads from memory what was stored non-temporally, and a
 * usual store leaves the lines in a cache that the peer may share.  So non-temporal stores pay only if they are WEIGHT
 * times as fast.
 *
 * Copies are timed (moves.h), all those to a peer.  A copy does not wait, so the scheduler rarely disturbs its time.
 */
#include <stdlib.h>

#include "tcp/shm/moves.h"
#include "tcp/shm/stores.h"

enum { USUAL, NON_TEMPORAL };

enum {
    SPAN = 16, /* copies of a short span: a large message fills the FIFO with 8 */
    TIMED = 7, /* of them, the last ones */
    WEIGHT = 8 /* times that non-temporal stores must be as fast */
};

void shm_store_timed(struct shm *shm, int local_rank, void *to, const void *from, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    if (peer->stores == NULL) peer->stores = calloc(1, sizeof *peer->stores);
    if (peer->stores == NULL) { /* this copy alone is not measured */
        tutti_copy(to, from, bytes);
        return;
    }
    bool is_usual = moves_next(peer->stores, SPAN, TIMED) == USUAL;
    int64_t begin_ns = peer->stores->is_timed ? shm->config.host->now_ns() : 0;
    if (is_usual)
        tutti_copy(to, from, bytes);
    else
        shm_copy_non_temporal(to, from, bytes);
    if (peer->stores->is_timed)
        moves_add(peer->stores, shm->config.host->now_ns() - begin_ns, is_usual ? 1 : WEIGHT, bytes);
}

void shm_print_stores(const struct shm *shm, int local_rank, char *text, size_t capacity)
{
    static const char *const names[CHOICE_WAYS] = {"usual stores", "non-temporal stores (times 8)"};
    _Static_assert(WEIGHT == 8, "the names say it");
    const struct shm_moves *stores = shm->peer[local_rank].stores;
    if (stores != NULL) choice_print(&stores->measured, "measured for copies of 64 KiB", names, text, capacity);
}
