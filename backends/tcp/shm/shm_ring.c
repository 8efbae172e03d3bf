/* Messages through rings, wake-ups, and the exit of a peer.
 *
 * A ring has one writer and one reader.  The writer fills a slot and then stores its turn with release.  The reader
 * loads the turn with acquire and then reads the slot, so its contents are visible.  The reader frees slots by storing
 * its read count with release.  The writer loads that count with acquire before it reuses a slot, so nothing is
 * overwritten while it is being read.
 *
 * Wake-ups.  A rank about to sleep stores `asleep` and then checks all its rings once more.  A writer stores the turn
 * and then loads `asleep`.  One of them must see the other's store, or a wake-up would be lost.  Release and acquire do
 * not guarantee that, and a fence in the writer would be a notable part of a small operation's cost.  So the sleeper
 * pays for both, with a fence and with time: it first sleeps only for a moment and then checks again (the core arms a
 * second time).  A writer whose load came too early to see `asleep` has already issued its store, which becomes visible
 * once it leaves the store buffer, within a microsecond (Morrison and Afek, "Temporally Bounding TSO for Fence-Free
 * Asymmetric Synchronization", ASPLOS 2015).  On arm64 the load may also run ahead of the store, but at most by the
 * processor's window of some hundred instructions, and a store becomes visible to all others at once.  C11 only
 * promises "within a reasonable amount of time": a slower processor would delay a wake-up until the waiting caller
 * checks its clock.  The same holds for `wants_room`, which a writer sets before it sleeps, and the read counts.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tcp/shm/shm_cell.h"

enum { LOOK_EVERY = 1024 /* progress calls between liveness checks */ };

/* ---- writing ----------------------------------------------------------------------------------------------- */

void shm_ring_bell(struct shm *shm, int seat)
{
    /* relaxed: exactly one waker sees 1 and rings; the doorbell provides the ordering */
    if (atomic_exchange_explicit(&shm_seat_at(shm, seat)->asleep, 0, memory_order_relaxed) == 0) return;
    if (shm_is_disowned(shm)) return; /* the peer sees this process exit */
    uint64_t one = 1;                 /* nobody else wakes it */
    ssize_t written = write(shm->peer[seat].bell, &one, sizeof one);
    (void)written; /* EAGAIN: it is readable already */
}

/* The number of slots is a power of two: see shm_measure. */
static struct shm_cell *cell_at(const struct shm *shm, struct shm_ring *ring, uint64_t count)
{
    return &ring->cell[count & (shm->cells - 1)];
}

/* Payload that does not fit a slot is contiguous: the rest of the byte area before its end is skipped.  Writer and
 * reader compute positions alike, so none is passed through memory. */
static uint64_t contiguous_at(const struct shm *shm, uint64_t count, size_t bytes)
{
    size_t left = shm->ring_bytes - count % shm->ring_bytes;
    return left >= bytes ? count : count + left;
}

static char *ring_bytes(const struct shm *shm, struct shm_ring *ring, uint64_t count)
{
    return (char *)&ring->cell[shm->cells] + count % shm->ring_bytes;
}

static bool fits(const struct shm *shm, const struct shm_peer *peer, size_t bytes)
{
    if (peer->cells_put - peer->cells_free >= shm->cells) return false;
    if (bytes <= SHM_INLINE) return true;
    return contiguous_at(shm, peer->bytes_put, bytes) + bytes - peer->bytes_free <= shm->ring_bytes;
}

static void update_free(struct shm_peer *peer)
{
    /* acquire, both: the reader is finished with these slots and bytes; the byte count may be newer than the slot count
     */
    uint64_t cells = atomic_load_explicit(&peer->out->cells_read, memory_order_acquire);
    uint64_t bytes = atomic_load_explicit(&peer->out->bytes_read, memory_order_acquire);
    if (peer->cells_put - cells <= peer->cells_put - peer->cells_free) peer->cells_free = cells;
    if (peer->bytes_put - bytes <= peer->bytes_put - peer->bytes_free) peer->bytes_free = bytes;
}

/* Returns true if the message entered the ring. */
static bool write_message(struct shm *shm, int seat, const struct wire_header *header, const void *payload,
                          size_t bytes)
{
    struct shm_peer *peer = &shm->peer[seat];
    if (!fits(shm, peer, bytes)) {
        update_free(peer);
        if (!fits(shm, peer, bytes)) return false;
    }
    struct shm_cell *cell = cell_at(shm, peer->out, peer->cells_put);
    shm_cell_pack(cell, header, (uint32_t)bytes);
    if (bytes <= SHM_INLINE) {
        tutti_copy(bytes <= SHM_TINY ? cell->tiny : cell->payload, payload, bytes);
    } else {
        uint64_t at = contiguous_at(shm, peer->bytes_put, bytes);
        memcpy(ring_bytes(shm, peer->out, at), payload, bytes);
        peer->bytes_put = at + bytes;
    }
    peer->cells_put++;
    atomic_store_explicit(&cell->turn, peer->cells_put, memory_order_release);
    shm_wake(shm, seat);
    return true;
}

bool shm_fits(struct shm *shm, int seat, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[seat];
    if (!STAILQ_EMPTY(&peer->waiting)) return false;
    if (fits(shm, peer, bytes)) return true;
    update_free(peer);
    return fits(shm, peer, bytes);
}

int shm_send(struct shm *shm, int seat, const struct wire_header *header, const void *payload, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[seat];
    if (peer->lost) return TUTTI_OK;
    if (STAILQ_EMPTY(&peer->waiting) && write_message(shm, seat, header, payload, bytes)) return TUTTI_OK;
    struct shm_waiting *waiting = malloc(sizeof *waiting + bytes);
    if (waiting == NULL) { /* dropping the message would hang the peer */
        shm_drop(shm, seat, "no memory for messages to it", true);
        return shm->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for a message to rank %d", peer->rank);
    }
    waiting->header = *header;
    waiting->bytes = bytes;
    if (bytes > 0) memcpy(waiting->payload, payload, bytes);
    STAILQ_INSERT_TAIL(&peer->waiting, waiting, link);
    return TUTTI_OK;
}

static int flush_waiting(struct shm *shm, int seat)
{
    struct shm_peer *peer = &shm->peer[seat];
    struct shm_waiting *waiting;
    int sent = 0;
    while ((waiting = STAILQ_FIRST(&peer->waiting)) != NULL) {
        if (!write_message(shm, seat, &waiting->header, waiting->payload, waiting->bytes)) break;
        STAILQ_REMOVE_HEAD(&peer->waiting, link);
        free(waiting);
        sent++;
    }
    return sent;
}

bool shm_unsend(struct shm *shm, int seat, enum wire_kind kind, uint64_t id)
{
    struct shm_waiting *waiting;
    STAILQ_FOREACH(waiting, &shm->peer[seat].waiting, link)
    {
        if (waiting->header.kind != kind || waiting->header.id != id) continue;
        STAILQ_REMOVE(&shm->peer[seat].waiting, waiting, shm_waiting, link);
        free(waiting);
        return true;
    }
    return false;
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

/* Returns the next message, or NULL. */
static struct shm_cell *next_cell(const struct shm *shm, const struct shm_peer *peer)
{
    struct shm_cell *cell = cell_at(shm, peer->in, peer->cells_got);
    return atomic_load_explicit(&cell->turn, memory_order_acquire) == peer->cells_got + 1 ? cell : NULL;
}

/* Delivers one message straight from its slot.  The header is copied first, because it is validated before use; the
 * payload is only copied or reduced. */
static void deliver(struct shm *shm, struct shm_peer *peer, const struct shm_cell *cell)
{
    struct wire_header header;
    uint32_t bytes = shm_cell_unpack(cell, (uint32_t)peer->rank, &header);
    const void *payload = bytes <= SHM_TINY ? cell->tiny : cell->payload;
    if (bytes > shm->ring_bytes) {
        shm_drop(shm, peer->seat, "it wrote invalid data to shared memory", true);
        return;
    }
    uint64_t end = peer->bytes_got;
    if (bytes > SHM_INLINE) {
        uint64_t at = contiguous_at(shm, peer->bytes_got, bytes);
        payload = ring_bytes(shm, peer->in, at);
        end = at + bytes;
    }
    shm->config.events->message(shm->config.user, &header, payload, bytes);
    peer->cells_got++;
    peer->bytes_got = end;
}

void shm_tell_of_room(struct shm *shm, int seat)
{
    struct shm_ring *in = shm->peer[seat].in;
    atomic_signal_fence(memory_order_seq_cst); /* as in shm_wake */
    if (atomic_load_explicit(&in->wants_room, memory_order_relaxed) == 0) return;
    /* An exchange, because a plain store could overwrite a later request unseen.  acquire: the writer whose request
     * this clears is seen asleep. */
    atomic_exchange_explicit(&in->wants_room, 0, memory_order_acquire);
    shm_wake(shm, seat);
}

/* Handles one peer's messages. */
int shm_read(struct shm *shm, int seat)
{
    struct shm_peer *peer = &shm->peer[seat];
    struct shm_cell *cell;
    int read = 0;
    while (!peer->lost && (cell = next_cell(shm, peer)) != NULL) {
        deliver(shm, peer, cell);
        if ((size_t)++read >= shm->cells) break; /* let other peers have their turn */
    }
    if (read == 0) return 0;
    /* release, as in the next store: orders the reads before the writer's reuse */
    atomic_store_explicit(&peer->in->bytes_read, peer->bytes_got, memory_order_release);
    atomic_store_explicit(&peer->in->cells_read, peer->cells_got, memory_order_release);
    shm_tell_of_room(shm, seat);
    return read;
}

/* ---- exit of a peer ------------------------------------------------------------------------------------------ */

void shm_drop(struct shm *shm, int seat, const char *why, bool notify)
{
    struct shm_peer *peer = &shm->peer[seat];
    struct shm_waiting *waiting;
    if (peer->lost) return;
    peer->lost = shm->has_lost = true;
    snprintf(peer->why, sizeof peer->why, "%s", why);
    while ((waiting = STAILQ_FIRST(&peer->waiting)) != NULL) {
        STAILQ_REMOVE_HEAD(&peer->waiting, link);
        free(waiting);
    }
    atomic_store_explicit(&peer->out->closed, 1, memory_order_release); /* after the messages sent before, */
    atomic_thread_fence(memory_order_release);                          /* and before the memory is reused */
    shm_wake(shm, seat);
    if (peer->life >= 0 && !shm_is_disowned(shm)) epoll_ctl(shm->watch, EPOLL_CTL_DEL, peer->life, NULL);
    if (notify) shm->config.events->lost(shm->config.user, peer->rank, peer->why);
}

bool shm_is_open(struct shm *shm, int seat)
{
    struct shm_peer *peer = &shm->peer[seat];
    struct pollfd life = {peer->life, POLLIN, 0};
    /* The peer stores `closed` before it reuses its memory, so data read earlier is valid if `closed` is still 0.  The
     * fence keeps reads of mapped memory from moving after the load. */
    atomic_thread_fence(memory_order_acquire);
    if (peer->lost || shm_is_disowned(shm) || atomic_load_explicit(&peer->in->closed, memory_order_acquire) != 0)
        return false;
    int ended;
    do ended = poll(&life, 1, 0);
    while (ended < 0 && errno == EINTR); /* EINTR says nothing about the peer */
    return ended == 0;
}

/* Handles the peer's last messages once.  They fit into a ring, so a peer that has closed its link but keeps writing is
 * not read forever. */
static void drop_after_read(struct shm *shm, int seat)
{
    shm_read(shm, seat);
    shm_drop(shm, seat, "connection closed", true);
}

void shm_unreadable(struct shm *shm, int seat)
{
    if (shm_is_open(shm, seat))
        shm_drop(shm, seat, "its memory cannot be read", true);
    else
        drop_after_read(shm, seat);
}

/* Drops all peers, since they can no longer be heard.  They see this process exit. */
static int drop_all(struct shm *shm)
{
    int lost = 0;
    for (int seat = 0; seat < shm->n; seat++) {
        lost += !shm->peer[seat].lost;
        shm_drop(shm, seat, "the program closed this process's descriptors", true);
    }
    return lost;
}

int shm_look_at_lives(struct shm *shm)
{
    struct epoll_event event[8];
    if (shm_is_disowned(shm)) return drop_all(shm);
    int n = epoll_wait(shm->watch, event, 8, 0), lost = 0;
    for (int i = 0; i < n; i++, lost++) drop_after_read(shm, (int)event[i].data.u32);
    atomic_thread_fence(memory_order_acquire); /* see shm_is_open */
    for (int seat = 0; seat < shm->n; seat++) {
        struct shm_peer *peer = &shm->peer[seat];
        /* acquire: earlier messages are read first */
        if (peer->lost || atomic_load_explicit(&peer->in->closed, memory_order_acquire) == 0) continue;
        drop_after_read(shm, seat);
        lost++;
    }
    return lost;
}

/* ---- progress and sleep -------------------------------------------------------------------------------------- */

static void leave_sleep(struct shm *shm)
{
    uint64_t count;
    shm->armed = false;
    /* relaxed: a peer that still sees 1 rings now or later, and a later sleep ends early.  The doorbell is therefore
     * drained in any case, since a ring may belong to an earlier sleep. */
    atomic_store_explicit(&shm_seat_at(shm, shm->seat)->asleep, 0, memory_order_relaxed);
    if (shm_is_disowned(shm)) return;
    ssize_t got = read(shm->bell, &count, sizeof count);
    (void)got;
}

int shm_progress(struct shm *shm)
{
    int moved = 0;
    bool check = shm->armed || ++shm->rounds % LOOK_EVERY == 0;
    if (shm->armed) leave_sleep(shm);
    for (int seat = 0; seat < shm->n; seat++) {
        struct shm_peer *peer = &shm->peer[seat];
        if (peer->lost) continue;
        moved += shm_read(shm, seat);
        if (!STAILQ_EMPTY(&peer->waiting)) moved += flush_waiting(shm, seat);
    }
    if (check) moved += shm_look_at_lives(shm);
    return moved;
}

static bool wants_room(const struct shm_peer *peer)
{
    return peer->window_owed > 0 || !STAILQ_EMPTY(&peer->waiting);
}

/* True if there is work after all. */
static bool has_work(struct shm *shm, int seat)
{
    struct shm_peer *peer = &shm->peer[seat];
    size_t bytes;
    if (next_cell(shm, peer) != NULL || shm_window_look(shm, seat, &bytes) != NULL) return true;
    if (atomic_load_explicit(&peer->in->closed, memory_order_relaxed) != 0)
        return true; /* handled by the next progress call */
    if (!STAILQ_EMPTY(&peer->waiting) && flush_waiting(shm, seat) > 0) return true;
    return peer->window_owed > 0 && shm_window_fits(shm, seat);
}

int shm_arm(struct shm *shm, int *descriptors)
{
    /* relaxed: ordered by the fence below, see the head of this file */
    atomic_store_explicit(&shm_seat_at(shm, shm->seat)->asleep, 1, memory_order_relaxed);
    shm->armed = true;
    for (int seat = 0; seat < shm->n; seat++) {
        struct shm_peer *peer = &shm->peer[seat];
        /* release: see shm_read */
        if (!peer->lost && wants_room(peer)) atomic_store_explicit(&peer->out->wants_room, 1, memory_order_release);
    }
    atomic_thread_fence(memory_order_seq_cst);
    for (int seat = 0; seat < shm->n; seat++)
        if (!shm->peer[seat].lost && has_work(shm, seat)) return 0;
    descriptors[0] = shm->bell;
    descriptors[1] = shm->watch;
    return 2;
}
