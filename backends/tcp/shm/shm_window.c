/* The copy-in/copy-out FIFO of a ring.  It carries large messages, one at a time, in pieces.
 *
 * The writer copies pieces in while the reader copies them out; each publishes a count.  (A message per piece would
 * cost more than the piece.)  If both ranks have a core, they use so little of the FIFO that it stays in the
 * first-level caches.  If they share cores they use all of it, to move as much as possible per time slice.
 *
 * Every message begins at the start of the FIFO, so no piece wraps and all but the last are of one size.  Both ends
 * advance their counts accordingly when a message ends.  An abandoned message leaves a whole FIFO length before the
 * next.  The next one has no space until the reader knows where it begins, so the reader cannot mistake its data for
 * the abandoned message's.
 *
 * Counts are stored with release and loaded with acquire: the writer's make the data visible, the reader's say that it
 * is finished with it.  Wake-ups work as for messages (shm_ring.c).
 */
#include <string.h>

#include "tcp/shm/shm.h"

enum { SPAN_NEAR = 8 << 10, PIECES_NEAR = 4, PIECES_SHARED = 8 };

/* Both are powers of two. */
static size_t span(const struct shm *shm)
{
    return shm->shares_cores || shm->window_bytes < SPAN_NEAR ? shm->window_bytes : SPAN_NEAR;
}

static size_t piece(const struct shm *shm, uint64_t left)
{
    size_t most = span(shm) / (shm->shares_cores ? PIECES_SHARED : PIECES_NEAR);
    return left < most ? (size_t)left : most;
}

static uint64_t next_start(const struct shm *shm, uint64_t count)
{
    uint64_t mask = span(shm) - 1;
    return (count + mask) & ~mask;
}

static char *place(const struct shm *shm, struct shm_ring *ring, uint64_t count)
{
    return (char *)&ring->cell[shm->cells] + shm->ring_bytes + (count & (span(shm) - 1));
}

/* ---- writing ----------------------------------------------------------------------------------------------- */

uint64_t shm_window_begin(struct shm *shm, int seat, uint64_t bytes)
{
    struct shm_peer *peer = &shm->peer[seat];
    peer->window_put = next_start(shm, peer->window_put);
    peer->window_owed = bytes;
    return peer->window_put;
}

bool shm_window_fits(struct shm *shm, int seat)
{
    struct shm_peer *peer = &shm->peer[seat];
    uint64_t end = peer->window_put + piece(shm, peer->window_owed);
    if (end - peer->window_free <= span(shm)) return true;
    uint64_t read = atomic_load_explicit(&peer->out->window_read, memory_order_acquire);
    if (peer->window_put - read <= peer->window_put - peer->window_free) peer->window_free = read;
    return end - peer->window_free <= span(shm);
}

size_t shm_window_put(struct shm *shm, int seat, const void *data)
{
    struct shm_peer *peer = &shm->peer[seat];
    const char *from = data;
    struct shm_put put;
    if (peer->window_owed == 0 || !shm_window_fits(shm, seat)) return 0;
    size_t most = peer->window_owed < span(shm) ? (size_t)peer->window_owed : span(shm);
    shm_put_begin(shm, &put, &peer->puts, most);
    do {
        size_t bytes = piece(shm, peer->window_owed);
        shm_put_copy(&put, place(shm, peer->out, peer->window_put), from, bytes);
        from += bytes;
        peer->window_owed -= bytes;
        peer->window_put += bytes;
        atomic_store_explicit(&peer->out->window_put, peer->window_put, memory_order_release);
    } while (from < (const char *)data + most && shm_window_fits(shm, seat));
    /* A partial copy says little about the cost. */
    if (from == (const char *)data + most) shm_put_end(shm, &put, SHM_COST_HERE);
    shm_wake(shm, seat);
    return (size_t)(from - (const char *)data);
}

void shm_window_take_back(struct shm *shm, int seat)
{
    struct shm_peer *peer = &shm->peer[seat];
    if (peer->window_owed > 0) peer->window_put = next_start(shm, peer->window_put) + span(shm);
    peer->window_owed = 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

bool shm_window_open(struct shm *shm, int seat, uint64_t start, uint64_t bytes)
{
    struct shm_peer *peer = &shm->peer[seat];
    if (start != next_start(shm, start)) return false;
    peer->window_got = start;
    peer->window_due = bytes;
    atomic_store_explicit(&peer->in->window_read, start, memory_order_release);
    shm_tell_of_room(shm, seat);
    return true;
}

const void *shm_window_look(struct shm *shm, int seat, size_t *bytes)
{
    struct shm_peer *peer = &shm->peer[seat];
    size_t wanted = piece(shm, peer->window_due);
    if (wanted == 0) return NULL;
    uint64_t put = atomic_load_explicit(&peer->in->window_put, memory_order_acquire);
    /* Whatever the count says, the position is inside the FIFO. */
    if ((int64_t)(put - peer->window_got) < (int64_t)wanted) return NULL;
    *bytes = wanted;
    return place(shm, peer->in, peer->window_got);
}

void shm_window_read(struct shm *shm, int seat, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[seat];
    peer->window_got += bytes;
    peer->window_due -= bytes;
    if (peer->window_due == 0) peer->window_got = next_start(shm, peer->window_got);
    atomic_store_explicit(&peer->in->window_read, peer->window_got, memory_order_release);
    shm_tell_of_room(shm, seat);
}

void shm_window_shut(struct shm *shm, int seat)
{
    shm->peer[seat].window_due = 0;
}
