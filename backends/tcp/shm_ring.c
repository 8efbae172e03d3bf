/* Messages through rings, waking, and the end of a peer.
 *
 * A ring has one writer and one reader.  The writer fills a cell and then stores its turn; the reader sees the turn and
 * then reads the cell: store and load are release and acquire, which is what makes the cell's contents visible.  The
 * reader gives cells back by storing how many it has read (release); the writer loads that (acquire) before it uses
 * them again, so nothing is overwritten that is still being read.
 *
 * Waking.  A rank that is about to sleep stores `asleep` and then looks at all its rings once more; a writer stores the
 * turn and then looks at `asleep`.  One of the two must see the other's store, or a wake-up would be lost.  Release and
 * acquire do not promise that, and a fence between the writer's store and look would cost it a tenth of a small
 * operation.  So the sleeper pays for both, with a fence and with time: it first sleeps for a moment only, and then
 * looks again (the core arms a second time).  A writer whose look was too early to see `asleep` has stored its turn
 * before, and a store is seen by all as soon as it has left its processor's buffer, in less than a microsecond (what
 * Morrison and Afek build on, "Temporally Bounding TSO for Fence-Free Asymmetric Synchronization", ASPLOS 2015).  On
 * arm64 the look may besides run ahead of the store, but no further than the processor's window of some hundred
 * instructions; and there, too, all others see a store at the same time.  C11 says no more than "within a reasonable
 * amount of time": a processor that took longer than that moment would delay a wake-up until the waiting caller looks
 * at its clock.  The same holds for room: `wants_room`, which a writer sets before it sleeps, and the counts of what
 * was read.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "shm_cell.h"

enum { LOOK_EVERY = 1024 /* rounds of progress until the peers' lives are looked at without sleeping */ };

/* ---- writing ----------------------------------------------------------------------------------------------- */

void shm_ring_bell(struct shm *shm, int seat)
{
    /* relaxed: of those who would wake it one does; the bell orders the rest */
    if (atomic_exchange_explicit(&shm_seat_at(shm, seat)->asleep, 0, memory_order_relaxed) == 0) return;
    if (shm_is_disowned(shm)) return; /* the peer sees this process's end */
    uint64_t one = 1;                 /* nobody else wakes it */
    ssize_t written = write(shm->peer[seat].bell, &one, sizeof one);
    (void)written; /* EAGAIN: it is readable already */
}

/* The number of cells is a power of two: see shm_measure. */
static struct shm_cell *cell_at(const struct shm *shm, struct shm_ring *ring, uint64_t count)
{
    return &ring->cell[count & (shm->cells - 1)];
}

/* Payload that does not fit a cell lies in one piece: what is left before the ring's end is skipped.  Writer and reader
 * count alike, so no position is passed through the memory. */
static uint64_t piece_at(const struct shm *shm, uint64_t count, size_t bytes)
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
    return piece_at(shm, peer->bytes_put, bytes) + bytes - peer->bytes_free <= shm->ring_bytes;
}

static void learn_room(struct shm_peer *peer)
{
    /* acquire, both: the reader has done with the cells, and with the bytes, which may be newer than the cells */
    uint64_t cells = atomic_load_explicit(&peer->out->cells_read, memory_order_acquire);
    uint64_t bytes = atomic_load_explicit(&peer->out->bytes_read, memory_order_acquire);
    if (peer->cells_put - cells <= peer->cells_put - peer->cells_free) peer->cells_free = cells;
    if (peer->bytes_put - bytes <= peer->bytes_put - peer->bytes_free) peer->bytes_free = bytes;
}

/* Whether the message went into the ring. */
static bool put(struct shm *shm, int seat, const struct wire_header *header, const void *payload, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[seat];
    if (!fits(shm, peer, bytes)) {
        learn_room(peer);
        if (!fits(shm, peer, bytes)) return false;
    }
    struct shm_cell *cell = cell_at(shm, peer->out, peer->cells_put);
    shm_cell_pack(cell, header, (uint32_t)bytes);
    if (bytes <= SHM_INLINE) {
        tutti_copy(bytes <= SHM_TINY ? cell->tiny : cell->payload, payload, bytes);
    } else {
        uint64_t at = piece_at(shm, peer->bytes_put, bytes);
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
    learn_room(peer);
    return fits(shm, peer, bytes);
}

int shm_send(struct shm *shm, int seat, const struct wire_header *header, const void *payload, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[seat];
    if (peer->lost) return TUTTI_OK;
    if (STAILQ_EMPTY(&peer->waiting) && put(shm, seat, header, payload, bytes)) return TUTTI_OK;
    struct shm_waiting *waiting = malloc(sizeof *waiting + bytes);
    if (waiting == NULL) { /* a lost message would be a hang */
        shm_drop(shm, seat, "no memory for messages to it", true);
        return shm->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for a message to rank %d", peer->rank);
    }
    waiting->header = *header;
    waiting->bytes = bytes;
    if (bytes > 0) memcpy(waiting->payload, payload, bytes);
    STAILQ_INSERT_TAIL(&peer->waiting, waiting, link);
    return TUTTI_OK;
}

static int send_waiting(struct shm *shm, int seat)
{
    struct shm_peer *peer = &shm->peer[seat];
    struct shm_waiting *waiting;
    int sent = 0;
    while ((waiting = STAILQ_FIRST(&peer->waiting)) != NULL) {
        if (!put(shm, seat, &waiting->header, waiting->payload, waiting->bytes)) break;
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

/* The next message, or NULL. */
static struct shm_cell *next_cell(const struct shm *shm, const struct shm_peer *peer)
{
    struct shm_cell *cell = cell_at(shm, peer->in, peer->cells_got);
    return atomic_load_explicit(&cell->turn, memory_order_acquire) == peer->cells_got + 1 ? cell : NULL;
}

/* One message is handed on straight out of its cell: its header is copied first, for it is checked and then believed;
 * the payload is only ever copied or reduced. */
static void hand_on(struct shm *shm, struct shm_peer *peer, const struct shm_cell *cell)
{
    struct wire_header header;
    uint32_t bytes = shm_cell_unpack(cell, (uint32_t)peer->rank, &header);
    const void *payload = bytes <= SHM_TINY ? cell->tiny : cell->payload;
    if (bytes > shm->ring_bytes) {
        shm_drop(shm, peer->seat, "it wrote nonsense into shared memory", true);
        return;
    }
    uint64_t end = peer->bytes_got;
    if (bytes > SHM_INLINE) {
        uint64_t at = piece_at(shm, peer->bytes_got, bytes);
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
    /* An exchange, for a plain store could take back a later sleeper's wish unseen; acquire: whoever's wish this takes
     * down is found asleep. */
    atomic_exchange_explicit(&in->wants_room, 0, memory_order_acquire);
    shm_wake(shm, seat);
}

/* Reads what one peer has sent. */
int shm_read(struct shm *shm, int seat)
{
    struct shm_peer *peer = &shm->peer[seat];
    struct shm_cell *cell;
    int read = 0;
    while (!peer->lost && (cell = next_cell(shm, peer)) != NULL) {
        hand_on(shm, peer, cell);
        if ((size_t)++read >= shm->cells) break; /* others have their turn */
    }
    if (read == 0) return 0;
    /* release, as the next store is: for the reads of what the writer may use again */
    atomic_store_explicit(&peer->in->bytes_read, peer->bytes_got, memory_order_release);
    atomic_store_explicit(&peer->in->cells_read, peer->cells_got, memory_order_release);
    shm_tell_of_room(shm, seat);
    return read;
}

/* ---- the end of a peer ------------------------------------------------------------------------------------- */

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
    atomic_store_explicit(&peer->out->closed, 1, memory_order_release); /* after what was sent before, */
    atomic_thread_fence(memory_order_release);                          /* and before the memory is used again */
    shm_wake(shm, seat);
    if (peer->life >= 0 && !shm_is_disowned(shm)) epoll_ctl(shm->watch, EPOLL_CTL_DEL, peer->life, NULL);
    if (notify) shm->config.events->lost(shm->config.user, peer->rank, peer->why);
}

bool shm_is_open(struct shm *shm, int seat)
{
    struct shm_peer *peer = &shm->peer[seat];
    struct pollfd life = {peer->life, POLLIN, 0};
    /* The peer stores it before it lets its memory be used for anything else, so what was read before is the peer's
     * message if it is still 0; the fence keeps reads of mapped memory from coming after the load. */
    atomic_thread_fence(memory_order_acquire);
    if (peer->lost || shm_is_disowned(shm) || atomic_load_explicit(&peer->in->closed, memory_order_acquire) != 0)
        return false;
    int ended;
    do ended = poll(&life, 1, 0);
    while (ended < 0 && errno == EINTR); /* a signal says nothing of the peer */
    return ended == 0;
}

/* What it had written before is no more than a ring holds, which is read in one go: one that said it has ended, and
 * goes on writing, is not listened to for ever. */
static void lose(struct shm *shm, int seat)
{
    shm_read(shm, seat);
    shm_drop(shm, seat, "connection closed", true);
}

void shm_unreadable(struct shm *shm, int seat)
{
    if (shm_is_open(shm, seat))
        shm_drop(shm, seat, "its memory cannot be read", true);
    else
        lose(shm, seat);
}

/* What the peers do cannot be heard any more.  They see the end of this process. */
static int lose_all(struct shm *shm)
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
    if (shm_is_disowned(shm)) return lose_all(shm);
    int n = epoll_wait(shm->watch, event, 8, 0), lost = 0;
    for (int i = 0; i < n; i++, lost++) lose(shm, (int)event[i].data.u32);
    atomic_thread_fence(memory_order_acquire); /* see shm_is_open */
    for (int seat = 0; seat < shm->n; seat++) {
        struct shm_peer *peer = &shm->peer[seat];
        /* acquire: what was written before is read first */
        if (peer->lost || atomic_load_explicit(&peer->in->closed, memory_order_acquire) == 0) continue;
        lose(shm, seat);
        lost++;
    }
    return lost;
}

/* ---- turns and sleep --------------------------------------------------------------------------------------- */

static void awake(struct shm *shm)
{
    uint64_t count;
    shm->armed = false;
    /* relaxed: whoever has seen it still up rings, now or later; then a later sleep ends a little early.  So the bell
     * is read in any case: it may have been for an earlier sleep. */
    atomic_store_explicit(&shm_seat_at(shm, shm->seat)->asleep, 0, memory_order_relaxed);
    if (shm_is_disowned(shm)) return;
    ssize_t got = read(shm->bell, &count, sizeof count);
    (void)got;
}

int shm_progress(struct shm *shm)
{
    int moved = 0;
    bool look = shm->armed || ++shm->rounds % LOOK_EVERY == 0;
    if (shm->armed) awake(shm);
    for (int seat = 0; seat < shm->n; seat++) {
        struct shm_peer *peer = &shm->peer[seat];
        if (peer->lost) continue;
        moved += shm_read(shm, seat);
        if (!STAILQ_EMPTY(&peer->waiting)) moved += send_waiting(shm, seat);
    }
    if (look) moved += shm_look_at_lives(shm);
    return moved;
}

static bool wants_room(const struct shm_peer *peer)
{
    return peer->window_owed > 0 || !STAILQ_EMPTY(&peer->waiting);
}

/* Whether there is something to do after all. */
static bool has_work(struct shm *shm, int seat)
{
    struct shm_peer *peer = &shm->peer[seat];
    size_t bytes;
    if (next_cell(shm, peer) != NULL || shm_window_look(shm, seat, &bytes) != NULL) return true;
    if (atomic_load_explicit(&peer->in->closed, memory_order_relaxed) != 0)
        return true; /* found in the next progress */
    if (!STAILQ_EMPTY(&peer->waiting) && send_waiting(shm, seat) > 0) return true;
    return peer->window_owed > 0 && shm_window_fits(shm, seat);
}

int shm_arm(struct shm *shm, int *descriptors)
{
    /* relaxed: the fence below orders it, see the head of this file */
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
