/* The copy-in/copy-out FIFO of a ring.  It carries large messages, one at a time, in pieces.
 *
 * The writer copies pieces in while the reader copies them out.  Each side publishes a count, because a message per
 * piece would cost more than the piece.  If both ranks have a core, they use so little of the FIFO that it stays in the
 * first-level caches.  If they share cores, they use all of it, to move as much as possible per time slice.
 *
 * Every message begins at the start of the FIFO, so no piece wraps, and all pieces but the last have the same size.
 * Both ends advance their counts accordingly when a message ends.  After an abandoned message the writer skips a whole
 * FIFO length.  The next message therefore has no space until the reader knows where it begins, and the reader cannot
 * mistake its data for the abandoned message's.
 *
 * Counts are stored with release and loaded with acquire.  The writer's count makes the data visible.  The reader's
 * count says that the reader is finished with them.  Wake-ups work as for messages (ring.c).
 */
#include <string.h>

#include "tcp/shm/shm.h"
#include "tcp/shm/stores.h"

enum { SPAN_CORES = 8 << 10, PIECES_CORES = 4, PIECES_SHARED = 8 };

/* Returns the bytes of the FIFO in use, a power of two. */
static size_t span(const struct shm *shm)
{
    return shm->shares_cores || shm->fifo_bytes < SPAN_CORES ? shm->fifo_bytes : SPAN_CORES;
}

static size_t piece(const struct shm *shm, uint64_t left)
{
    size_t most = span(shm) / (shm->shares_cores ? PIECES_SHARED : PIECES_CORES);
    return left < most ? (size_t)left : most;
}

static uint64_t next_start(const struct shm *shm, uint64_t count)
{
    uint64_t mask = span(shm) - 1;
    return (count + mask) & ~mask;
}

/* Returns the place of a count in the FIFO behind a byte area. */
static char *place(const struct shm *shm, char *area, uint64_t count)
{
    return area + shm->ring_bytes + (count & (span(shm) - 1));
}

bool shm_fifo_reserve(struct shm *shm, int local_rank, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    size_t has = peer->out_fifo, needs = bytes < span(shm) ? bytes : span(shm);
    if (needs <= has) return true;
    if (!shm_reserve(shm, local_rank, shm->ring_bytes + has, needs - has)) return false;
    peer->out_fifo = needs;
    return true;
}

/* ---- writing ----------------------------------------------------------------------------------------------- */

uint64_t shm_fifo_begin(struct shm *shm, int local_rank, uint64_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    peer->fifo_written = next_start(shm, peer->fifo_written);
    peer->fifo_unsent = bytes;
    return peer->fifo_written;
}

bool shm_fifo_has_space(struct shm *shm, int local_rank)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    uint64_t end = peer->fifo_written + piece(shm, peer->fifo_unsent);
    if (end - peer->fifo_freed <= span(shm)) return true;
    uint64_t read = atomic_load_explicit(&peer->out->fifo_read, memory_order_acquire);
    if (peer->fifo_written - read <= peer->fifo_written - peer->fifo_freed) peer->fifo_freed = read;
    return end - peer->fifo_freed <= span(shm);
}

size_t shm_fifo_copy_in(struct shm *shm, int local_rank, const void *data)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    const char *from = data;
    if (peer->fifo_unsent == 0 || !shm_fifo_has_space(shm, local_rank)) return 0;
    size_t most = peer->fifo_unsent < span(shm) ? (size_t)peer->fifo_unsent : span(shm);
    do {
        size_t bytes = piece(shm, peer->fifo_unsent);
        shm_store(shm, local_rank, place(shm, peer->out_bytes, peer->fifo_written), from, bytes);
        from += bytes;
        peer->fifo_unsent -= bytes;
        peer->fifo_written += bytes;
        atomic_store_explicit(&peer->out->fifo_written, peer->fifo_written, memory_order_release);
    } while (from < (const char *)data + most && shm_fifo_has_space(shm, local_rank));
    shm_wake(shm, local_rank);
    return (size_t)(from - (const char *)data);
}

void shm_fifo_abandon(struct shm *shm, int local_rank)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    if (peer->fifo_unsent > 0) peer->fifo_written = next_start(shm, peer->fifo_written) + span(shm);
    peer->fifo_unsent = 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

bool shm_fifo_open(struct shm *shm, int local_rank, uint64_t start, uint64_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    if (start != next_start(shm, start)) return false;
    peer->fifo_consumed = start;
    peer->fifo_expected = bytes;
    atomic_store_explicit(&peer->in->fifo_read, start, memory_order_release);
    shm_wake_writer(shm, local_rank);
    return true;
}

const void *shm_fifo_peek(struct shm *shm, int local_rank, size_t *bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    size_t wanted = piece(shm, peer->fifo_expected);
    if (wanted == 0) return NULL;
    uint64_t put = atomic_load_explicit(&peer->in->fifo_written, memory_order_acquire);
    /* A faulty count does no harm: `place` keeps the position inside the FIFO. */
    if ((int64_t)(put - peer->fifo_consumed) < (int64_t)wanted) return NULL;
    *bytes = wanted;
    return place(shm, peer->in_bytes, peer->fifo_consumed);
}

void shm_fifo_release(struct shm *shm, int local_rank, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    peer->fifo_consumed += bytes;
    peer->fifo_expected -= bytes;
    if (peer->fifo_expected == 0) peer->fifo_consumed = next_start(shm, peer->fifo_consumed);
    atomic_store_explicit(&peer->in->fifo_read, peer->fifo_consumed, memory_order_release);
    shm_wake_writer(shm, local_rank);
}

void shm_fifo_close(struct shm *shm, int local_rank)
{
    shm->peer[local_rank].fifo_expected = 0;
}
