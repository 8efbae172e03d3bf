/* Messages through rings, wake-ups, and a peer's exit.
 *
 * A ring has one writer and one reader.  The writer fills a slot and then stores its turn with release.  The reader
 * loads the turn with acquire and then reads the slot, so its contents are visible.  The reader frees slots by storing
 * its read count with release.  The writer loads that count with acquire before it reuses a slot, so nothing is
 * overwritten while it is being read.
 *
 * Wake-ups are described in wake.c.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tcp/shm/own_line.h"
#include "tcp/shm/ring_slot.h"
#include "tcp/shm/stores.h"

enum {
    CHECK_EVERY = 1024, /* progress calls between liveness checks */
    OWN_MAX = 1024,     /* the largest message for whose data own_ahead asks */
    SPAN = 16 << 10,    /* bytes between looks whether the reader has read all: see restart */
    ROOM = 16 << 10,    /* bytes of a byte area that get memory first: enough for a reader that keeps up */
    SPACE_TURNS = 4     /* yields before a message is queued: see await_space */
};

/* ---- writing ----------------------------------------------------------------------------------------------- */

/* Returns the slot of a message.  The number of slots is a power of two: see shm_measure. */
static struct shm_slot *slot_at(const struct shm *shm, struct shm_ring *ring, uint64_t count)
{
    return &ring->slot[count & (shm->slots - 1)];
}

/* Returns the offset of a count in a byte area, whose size is a power of two, too. */
static size_t offset_of(const struct shm *shm, uint64_t count)
{
    return (size_t)count & (shm->ring_bytes - 1);
}

/* Returns the position of a payload that does not fit a slot.  It is contiguous: if it does not fit before the end of
 * the byte area, it begins at the start.  Writer and reader compute positions alike, so memory need not hold them. */
static uint64_t contiguous_at(const struct shm *shm, uint64_t count, size_t bytes)
{
    size_t left = shm->ring_bytes - offset_of(shm, count);
    return left >= bytes ? count : count + left;
}

/* Returns the next position at the start of the byte area. */
static uint64_t next_start(const struct shm *shm, uint64_t count)
{
    return count + (-offset_of(shm, count) & (shm->ring_bytes - 1));
}

/* Returns the place of a count in a byte area. */
static char *place(const struct shm *shm, char *area, uint64_t count)
{
    return area + offset_of(shm, count);
}

/* True if a message fits into the ring. */
static bool fits(const struct shm *shm, const struct shm_peer *peer, size_t bytes)
{
    if (peer->slots_written - peer->slots_freed >= shm->slots) return false;
    if (bytes <= SHM_INLINE) return true;
    return contiguous_at(shm, peer->bytes_written, bytes) + bytes - peer->bytes_freed <= shm->ring_bytes;
}

/* True if the byte area has memory for a message at this position. */
static bool has_memory(const struct shm *shm, const struct shm_peer *peer, uint64_t at, size_t bytes)
{
    return offset_of(shm, at) + bytes <= peer->out_room;
}

/* Few pairs of ranks need all of the byte area, and memory costs time, too.  Not inline: it is rare. */
__attribute__((noinline)) bool shm_ring_reserve(struct shm *shm, int local_rank, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    size_t had = peer->out_room, room = had > 0 ? had : ROOM;
    if (bytes <= had) return true;
    while (room < bytes) room *= 2;
    if (room > shm->ring_bytes) room = shm->ring_bytes;
    if (bytes > room || !shm_reserve(shm, local_rank, had, room - had)) return false;
    peer->out_room = room;
    return true;
}

static void update_free(struct shm_peer *peer)
{
    /* acquire, both: the reader is finished with these slots and bytes.  The byte count may be newer than the slots'.
     */
    uint64_t slots = atomic_load_explicit(&peer->out->slots_read, memory_order_acquire);
    uint64_t bytes = atomic_load_explicit(&peer->out->bytes_read, memory_order_acquire);
    if (peer->slots_written - slots <= peer->slots_written - peer->slots_freed) peer->slots_freed = slots;
    if (peer->bytes_written - bytes <= peer->bytes_written - peer->bytes_freed) peer->bytes_freed = bytes;
}

/* Returns the position of a message for which there is space.  Sets *at_start if it begins anew at the start of the
 * byte area, because the reader has read all.  It looks once per span.  A reader that keeps up thus makes both ranks
 * use few lines, which stay in their caches. */
static inline uint64_t restart(const struct shm *shm, struct shm_peer *peer, size_t bytes, bool *at_start)
{
    uint64_t at = contiguous_at(shm, peer->bytes_written, bytes);
    if (((at + bytes) ^ peer->bytes_written) < SPAN && has_memory(shm, peer, at, bytes)) return at;
    update_free(peer);
    if (peer->slots_freed != peer->slots_written) return at;
    *at_start = true;
    return next_start(shm, peer->bytes_written);
}

/* Asks for the lines that a later message fills if it and those before it have the same size. */
static void own_ahead(const struct shm *shm, const struct shm_peer *peer, size_t bytes)
{
    struct shm_slot *slot = slot_at(shm, peer->out, peer->slots_written - 1 + OWN_AHEAD);
    own_line(slot);
    if (bytes <= SHM_TINY || bytes > OWN_MAX) return;
    if (bytes <= SHM_INLINE) {
        own_lines(&slot->size, offsetof(struct shm_slot, payload) - offsetof(struct shm_slot, size) + bytes);
        return;
    }
    uint64_t at = contiguous_at(shm, peer->bytes_written + (OWN_AHEAD - 1) * bytes, bytes);
    own_lines(place(shm, peer->out_bytes, at), bytes);
}

/* Writes a message to the ring.  Returns false if there is no space.  Inline, like deliver, because nearly all messages
 * take this path. */
static inline __attribute__((always_inline)) bool
write_message(struct shm *shm, int local_rank, const struct transport_header *header, const void *payload, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    if (!fits(shm, peer, bytes)) {
        update_free(peer);
        if (!fits(shm, peer, bytes)) return false;
    }
    struct shm_slot *slot = slot_at(shm, peer->out, peer->slots_written);
    shm_slot_pack(slot, header, (uint32_t)bytes);
    if (bytes <= SHM_INLINE) {
        tutti_copy(bytes <= SHM_TINY ? slot->tiny : slot->payload, payload, bytes);
    } else {
        bool at_start = false;
        uint64_t at = restart(shm, peer, bytes, &at_start);
        if (!has_memory(shm, peer, at, bytes) && !shm_ring_reserve(shm, local_rank, offset_of(shm, at) + bytes))
            return false;
        if (at_start) {
            slot->bytes |= SHM_AT_START;
            peer->bytes_freed = at;
        }
        shm_store(shm, local_rank, place(shm, peer->out_bytes, at), payload, bytes);
        peer->bytes_written = at + bytes;
    }
    peer->slots_written++;
    atomic_store_explicit(&slot->turn, peer->slots_written, memory_order_release);
    shm_wake(shm, local_rank);
    own_ahead(shm, peer, bytes);
    return true;
}

bool shm_fits(struct shm *shm, int local_rank, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    if (!STAILQ_EMPTY(&peer->waiting)) return false;
    if (fits(shm, peer, bytes)) return true;
    update_free(peer);
    return fits(shm, peer, bytes);
}

static void free_waiting(struct shm *shm, struct shm_waiting *waiting)
{
    spares_give(&shm->spares, waiting, sizeof *waiting + waiting->bytes);
}

static int flush_waiting(struct shm *shm, int local_rank)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    struct shm_waiting *waiting;
    int sent = 0;
    while ((waiting = STAILQ_FIRST(&peer->waiting)) != NULL) {
        if (!write_message(shm, local_rank, &waiting->header, waiting->payload, waiting->bytes)) break;
        STAILQ_REMOVE_HEAD(&peer->waiting, link);
        free_waiting(shm, waiting);
        sent++;
    }
    return sent;
}

/* Writes a message behind those that wait for space.  A program that only sends makes no other progress, so each send
 * moves what waits.  Returns false if there is no space. */
static bool enter_ring(struct shm *shm, int local_rank, const struct transport_header *header, const void *payload,
                       size_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    if (!STAILQ_EMPTY(&peer->waiting)) flush_waiting(shm, local_rank);
    return STAILQ_EMPTY(&peer->waiting) && write_message(shm, local_rank, header, payload, bytes);
}

/* Gives the core to the receiver, which may share it, and writes the message once there is space.  That costs less than
 * to queue a copy, and a rank that only sends does not run far ahead.  While messages are queued the receiver does
 * something else, and yields would only delay this rank. */
static bool await_space(struct shm *shm, int local_rank, const struct transport_header *header, const void *payload,
                        size_t bytes)
{
    if (!shm->shares_cores || !STAILQ_EMPTY(&shm->peer[local_rank].waiting)) return false;
    for (int i = 0; i < SPACE_TURNS; i++) {
        shm_pause(shm);
        if (enter_ring(shm, local_rank, header, payload, bytes)) return true;
    }
    return false;
}

/* Sends a message for which there was no space, or keeps a copy until there is.  Not inline, so that shm_send saves no
 * registers for it. */
static __attribute__((noinline)) int send_later(struct shm *shm, int local_rank, const struct transport_header *header,
                                                const void *payload, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    struct shm_waiting *waiting = NULL;
    if (bytes <= SHM_INLINE || shm_ring_reserve(shm, local_rank, bytes)) {
        if (enter_ring(shm, local_rank, header, payload, bytes)) return TUTTI_OK;
        if (await_space(shm, local_rank, header, payload, bytes)) return TUTTI_OK;
        waiting = spares_take(&shm->spares, sizeof *waiting + bytes);
    }
    if (waiting == NULL) return shm_drop_starved(shm, local_rank); /* dropping the message would hang the peer */
    waiting->header = *header;
    waiting->bytes = bytes;
    tutti_copy(waiting->payload, payload, bytes);
    STAILQ_INSERT_TAIL(&peer->waiting, waiting, link);
    return TUTTI_OK;
}

int shm_send(struct shm *shm, int local_rank, const struct transport_header *header, const void *payload, size_t bytes)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    if (peer->lost) return TUTTI_OK;
    if (STAILQ_EMPTY(&peer->waiting) && write_message(shm, local_rank, header, payload, bytes)) return TUTTI_OK;
    return send_later(shm, local_rank, header, payload, bytes);
}

bool shm_unsend(struct shm *shm, int local_rank, uint8_t kind, uint64_t id)
{
    struct shm_waiting *waiting;
    STAILQ_FOREACH(waiting, &shm->peer[local_rank].waiting, link)
    {
        if (waiting->header.kind != kind || waiting->header.id != id) continue;
        STAILQ_REMOVE(&shm->peer[local_rank].waiting, waiting, shm_waiting, link);
        free_waiting(shm, waiting);
        return true;
    }
    return false;
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

/* True if the slot holds the peer's next message. */
static bool has_next(const struct shm_peer *peer, const struct shm_slot *slot)
{
    return atomic_load_explicit(&slot->turn, memory_order_acquire) == peer->slots_consumed + 1;
}

/* Delivers one message straight from its slot.  Copies the header first, because the peer must not change it between
 * validation and use.  The payload is only copied or reduced, so it needs no copy. */
static inline __attribute__((always_inline)) void deliver(struct shm *shm, struct shm_peer *peer,
                                                          const struct shm_slot *slot)
{
    struct transport_header header;
    bool at_start;
    uint32_t bytes = shm_slot_unpack(slot, (uint32_t)peer->rank, &header, &at_start);
    const void *payload = bytes <= SHM_TINY ? slot->tiny : slot->payload;
    if (bytes > shm->ring_bytes) {
        shm_drop(shm, peer->local_rank, "it wrote invalid data to shared memory", true);
        return;
    }
    uint64_t end = peer->bytes_consumed;
    if (bytes > SHM_INLINE) {
        uint64_t at =
            at_start ? next_start(shm, peer->bytes_consumed) : contiguous_at(shm, peer->bytes_consumed, bytes);
        payload = place(shm, peer->in_bytes, at);
        end = at + bytes;
    }
    if (header.kind == SHM_STREAM)
        shm_stream_begin(shm, peer->rank, &header);
    else if (!shm->config.events->message(shm->config.user, &shm->transport, &header, payload, bytes))
        shm_drop(shm, peer->local_rank, "it wrote an invalid message to shared memory", true);
    peer->slots_consumed++;
    peer->bytes_consumed = end;
}

int shm_read(struct shm *shm, int local_rank, size_t most)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    struct shm_slot *slot = slot_at(shm, peer->in, peer->slots_consumed);
    int read = 0;
    while (!peer->lost && has_next(peer, slot) && (size_t)read < most) {
        struct shm_slot *next = slot_at(shm, peer->in, peer->slots_consumed + 1);
        __builtin_prefetch(next);
        deliver(shm, peer, slot);
        slot = next;
        read++;
    }
    if (read == 0) return 0;
    /* release, both: the reads are complete before the writer reuses the slots and bytes */
    atomic_store_explicit(&peer->in->bytes_read, peer->bytes_consumed, memory_order_release);
    atomic_store_explicit(&peer->in->slots_read, peer->slots_consumed, memory_order_release);
    shm_wake_writer(shm, local_rank);
    return read;
}

/* ---- exit of a peer ------------------------------------------------------------------------------------------ */

void shm_drop(struct shm *shm, int local_rank, const char *why, bool notify)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    struct shm_waiting *waiting;
    if (peer->lost) return;
    peer->lost = shm->has_lost = true;
    snprintf(peer->why, sizeof peer->why, "%s", why);
    while ((waiting = STAILQ_FIRST(&peer->waiting)) != NULL) {
        STAILQ_REMOVE_HEAD(&peer->waiting, link);
        free_waiting(shm, waiting);
    }
    /* release: earlier messages are visible first; the fence orders `closed` before any reuse of this rank's memory */
    atomic_store_explicit(&peer->out->closed, 1, memory_order_release);
    atomic_thread_fence(memory_order_release);
    shm_wake(shm, local_rank);
    shm_settle(shm);
    if (peer->liveness_fd >= 0 && !shm_is_disowned(shm)) epoll_ctl(shm->watch, EPOLL_CTL_DEL, peer->liveness_fd, NULL);
    if (!notify) return;
    shm_stream_finish(shm, peer->rank);
    shm->config.events->lost(shm->config.user, peer->rank, peer->why);
}

static const char no_descriptors[] = "the program closed this process's descriptors";

int shm_drop_starved(struct shm *shm, int local_rank)
{
    const struct shm_peer *peer = &shm->peer[local_rank];
    bool disowned = shm_is_disowned(shm);
    shm_drop(shm, local_rank, disowned ? no_descriptors : "no memory for messages to it", true);
    return disowned ? shm->config.host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: %s", peer->rank, peer->why)
                    : shm->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for a message to rank %d", peer->rank);
}

bool shm_has_closed(struct shm *shm, int local_rank)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    /* The peer stores `closed` before it reuses its memory, so data that were read before are valid if `closed` is
     * still 0.  The fence keeps reads of mapped memory from moving after the load. */
    atomic_thread_fence(memory_order_acquire);
    return peer->lost || atomic_load_explicit(&peer->in->closed, memory_order_acquire) != 0;
}

bool shm_is_open(struct shm *shm, int local_rank)
{
    struct pollfd liveness = {shm->peer[local_rank].liveness_fd, POLLIN, 0};
    if (shm_has_closed(shm, local_rank) || shm_is_disowned(shm)) return false;
    int ended;
    do ended = poll(&liveness, 1, 0);
    while (ended < 0 && errno == EINTR); /* EINTR says nothing about the peer */
    return ended == 0;
}

static const char closed[] = "connection closed";

/* Handles the peer's last messages, then drops it.  One pass suffices, because they fit into a ring.  A peer that has
 * closed its link but keeps writing is not read forever. */
static void drop_after_read(struct shm *shm, int local_rank, const char *why)
{
    shm_read(shm, local_rank, shm->slots);
    shm_drop(shm, local_rank, why, true);
}

/* Drops a peer whose memory cannot be read, after its last messages.  A process that exits frees its memory before it
 * closes its descriptors, so the peer may be about to end although its link is open. */
void shm_unreadable(struct shm *shm, int local_rank)
{
    bool open = shm_is_open(shm, local_rank);
    drop_after_read(shm, local_rank, open ? "its memory cannot be read" : closed);
}

/* Drops all peers, because this rank cannot receive their wake-ups.  They notice that its liveness pipe is closed. */
static int drop_all(struct shm *shm)
{
    int lost = 0;
    for (int local_rank = 0; local_rank < shm->n; local_rank++) {
        lost += !shm->peer[local_rank].lost;
        shm_drop(shm, local_rank, no_descriptors, true);
    }
    return lost;
}

int shm_check_liveness(struct shm *shm)
{
    struct epoll_event event[8];
    if (shm_is_disowned(shm)) return drop_all(shm);
    int n = epoll_wait(shm->watch, event, 8, 0), lost = 0;
    for (int i = 0; i < n; i++, lost++) drop_after_read(shm, (int)event[i].data.u32, closed);
    atomic_thread_fence(memory_order_acquire); /* as in shm_has_closed */
    for (int local_rank = 0; local_rank < shm->n; local_rank++) {
        struct shm_peer *peer = &shm->peer[local_rank];
        /* acquire: the peer's earlier messages are visible */
        if (peer->lost || atomic_load_explicit(&peer->in->closed, memory_order_acquire) == 0) continue;
        drop_after_read(shm, local_rank, closed);
        lost++;
    }
    return lost;
}

/* ---- progress and sleep -------------------------------------------------------------------------------------- */

static void leave_sleep(struct shm *shm)
{
    uint64_t count;
    shm->armed = false;
    /* relaxed: a peer that still sees 1 rings now or later, which only ends a later sleep early.  Drain the doorbell in
     * any case, because a ring may belong to an earlier sleep. */
    atomic_store_explicit(&shm_rank_at(shm, shm->local_rank)->asleep, 0, memory_order_relaxed);
    if (shm_is_disowned(shm)) return;
    ssize_t got = read(shm->doorbell_fd, &count, sizeof count);
    (void)got;
}

int shm_progress(struct shm *shm)
{
    int moved = 0;
    bool check = shm->armed || ++shm->rounds % CHECK_EVERY == 0;
    if (shm->armed) leave_sleep(shm);
    for (int local_rank = 0; local_rank < shm->n; local_rank++) {
        struct shm_peer *peer = &shm->peer[local_rank];
        if (peer->lost) continue;
        moved += shm_read(shm, local_rank, shm->slots); /* other peers' messages come before a second round */
        if (!STAILQ_EMPTY(&peer->waiting)) moved += flush_waiting(shm, local_rank);
    }
    if (check) moved += shm_check_liveness(shm);
    shm_settle(shm);
    return moved;
}

static bool wants_space(const struct shm_peer *peer)
{
    return peer->fifo_unsent > 0 || !STAILQ_EMPTY(&peer->waiting);
}

/* True if there is something to do for this peer, so that this rank must not sleep. */
static bool has_work(struct shm *shm, int local_rank)
{
    struct shm_peer *peer = &shm->peer[local_rank];
    size_t bytes;
    if (has_next(peer, slot_at(shm, peer->in, peer->slots_consumed)) || shm_fifo_peek(shm, local_rank, &bytes) != NULL)
        return true;
    if (atomic_load_explicit(&peer->in->closed, memory_order_relaxed) != 0)
        return true; /* handled by the next progress call */
    if (!STAILQ_EMPTY(&peer->waiting) && flush_waiting(shm, local_rank) > 0) return true;
    return peer->fifo_unsent > 0 && shm_fifo_has_space(shm, local_rank);
}

int shm_arm(struct shm *shm, int *descriptors)
{
    /* relaxed: the fence below orders it: see wake.c */
    atomic_store_explicit(&shm_rank_at(shm, shm->local_rank)->asleep, 1, memory_order_relaxed);
    shm->armed = true;
    for (int local_rank = 0; local_rank < shm->n; local_rank++) {
        struct shm_peer *peer = &shm->peer[local_rank];
        /* release: pairs with the exchange in wake_writer */
        if (!peer->lost && wants_space(peer)) atomic_store_explicit(&peer->out->wants_space, 1, memory_order_release);
    }
    atomic_thread_fence(memory_order_seq_cst); /* pairs with the fence in shm_settle_all */
    for (int local_rank = 0; local_rank < shm->n; local_rank++)
        if (!shm->peer[local_rank].lost && has_work(shm, local_rank)) return 0;
    descriptors[0] = shm->doorbell_fd;
    descriptors[1] = shm->watch;
    return 2;
}
