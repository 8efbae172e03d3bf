/* Writes to a peer's exposed memory, streamed through the ring's copy-in/copy-out FIFO (fifo.c).
 *
 * The oldest write to a peer owns the FIFO.  A SHM_STREAM message in the ring tells the receiver which memory the bytes
 * are for and where they begin.  Both ends copy whenever they make progress.
 */
#include "tcp/shm/offers.h"

enum {
    TURN_BYTES = 4 << 20,       /* maximum bytes copied out in one turn: less than half a millisecond */
    NON_TEMPORAL_MIN = 16 << 20 /* from this size on, the caches cannot hold the data until they are used */
};

/* Returns the oldest write to this peer, which owns the FIFO, or NULL. */
static struct transport_write *first_write(const struct shm *shm, int32_t rank)
{
    struct transport_write *write = TAILQ_FIRST(&shm->writes);
    while (write != NULL && write->rank != rank) write = TAILQ_NEXT(write, entry);
    return write;
}

/* Returns the memory that receives this peer's bytes in the FIFO, or NULL. */
static struct transport_memory *find_incoming(const struct shm *shm, int32_t rank)
{
    struct transport_memory *memory = TAILQ_FIRST(&shm->incoming);
    while (memory != NULL && memory->rank != rank) memory = TAILQ_NEXT(memory, entry);
    return memory;
}

static struct transport_memory *find_exposed(const struct shm *shm, int32_t rank, uint64_t key)
{
    struct transport_memory *memory = TAILQ_FIRST(&shm->exposed);
    while (memory != NULL && (memory->key != key || memory->rank != rank)) memory = TAILQ_NEXT(memory, entry);
    return memory;
}

/* ---- sender ------------------------------------------------------------------------------------------------ */

/* Assigns the FIFO to the oldest write to this peer, if there is one.  May drop the link. */
static void start_next(struct shm *shm, int32_t rank)
{
    struct transport_write *write = first_write(shm, rank);
    int local_rank = shm_local_rank(shm, rank);
    if (write == NULL || shm->peer[local_rank].lost) return;
    if (!shm_fifo_reserve(shm, local_rank, write->bytes)) {
        (void)shm_drop_starved(shm, local_rank);
        return;
    }
    uint64_t start = shm_fifo_begin(shm, local_rank, write->bytes);
    struct transport_header header = {.kind = SHM_STREAM, .ref = write->key, .bytes = write->bytes, .id = start + 1};
    shm_send(shm, local_rank, &header, NULL, 0);
}

void shm_write(struct shm *shm, int32_t rank, struct transport_write *write)
{
    write->rank = rank;
    write->posted = 0;
    write->queued = true;
    TAILQ_INSERT_TAIL(&shm->writes, write, entry);
    if (first_write(shm, rank) == write) start_next(shm, rank);
}

static void unqueue(struct shm *shm, struct transport_write *write)
{
    TAILQ_REMOVE(&shm->writes, write, entry);
    write->queued = false;
}

bool shm_unwrite(struct shm *shm, struct transport_write *write)
{
    if (!write->queued) return false;
    int32_t rank = write->rank;
    bool had_fifo = first_write(shm, rank) == write;
    unqueue(shm, write);
    if (!had_fifo) return true;
    shm_fifo_abandon(
        shm, shm_local_rank(shm, rank)); /* the bytes in the FIFO are copies, so the write's memory is free at once */
    start_next(shm, rank);
    return true;
}

/* Copies in as much of the write as fits.  Returns true if any bytes were copied. */
static bool copy_in(struct shm *shm, struct transport_write *write)
{
    int32_t rank = write->rank;
    int local_rank = shm_local_rank(shm, rank);
    if (first_write(shm, rank) != write) return false;
    size_t bytes = shm_fifo_copy_in(shm, local_rank, (const char *)write->data + write->posted);
    write->posted += bytes;
    if (write->posted < write->bytes) return bytes > 0;
    unqueue(shm, write);
    shm->config.events->write_done(shm->config.user, write);
    start_next(shm, rank); /* last, because it may drop the link */
    return true;
}

/* ---- receiver ---------------------------------------------------------------------------------------------- */

static void move_memory(struct transport_memories *list, struct transport_memory *memory)
{
    if (memory->handle != NULL) TAILQ_REMOVE((struct transport_memories *)memory->handle, memory, entry);
    memory->handle = list;
    if (list != NULL) TAILQ_INSERT_TAIL(list, memory, entry);
}

void shm_expose(struct shm *shm, int32_t rank, struct transport_memory *memory)
{
    memory->transport = &shm->transport;
    memory->rank = rank;
    memory->received = 0;
    move_memory(&shm->exposed, memory);
}

void shm_conceal(struct shm *shm, struct transport_memory *memory)
{
    if (memory->handle == &shm->incoming) shm_fifo_close(shm, shm_local_rank(shm, memory->rank));
    move_memory(NULL, memory);
    memory->transport = NULL;
}

/* Copies out the pieces that have arrived, up to TURN_BYTES.  Returns true if any bytes were copied. */
static bool copy_out(struct shm *shm, struct transport_memory *memory)
{
    tutti_request *request = memory->request;
    int local_rank = shm_local_rank(shm, memory->rank);
    size_t bytes, begin = memory->received;
    const void *piece;
    while (memory->received - begin < TURN_BYTES && (piece = shm_fifo_peek(shm, local_rank, &bytes)) != NULL) {
        int64_t begin_ns = shm_offer_begin(shm, local_rank, request, SHM_OFFER_FIFO);
        if (request->bytes >= NON_TEMPORAL_MIN)
            shm_copy_non_temporal((char *)request->data + memory->received, piece, bytes);
        else
            tutti_request_take(shm->config.host, request, memory->received, piece, bytes);
        shm_offer_end(shm, local_rank, SHM_OFFER_FIFO, begin_ns, bytes);
        memory->received += bytes;
        shm_fifo_release(shm, local_rank, bytes);
    }
    bool moved = memory->received > begin;
    if (memory->received < request->bytes) return moved;
    shm_conceal(shm, memory);
    shm->config.events->written(shm->config.user, memory->key);
    return moved;
}

static void drain(struct shm *shm, int32_t rank)
{
    struct transport_memory *memory = find_incoming(shm, rank);
    if (memory != NULL) copy_out(shm, memory);
}

void shm_stream_begin(struct shm *shm, int32_t rank, const struct transport_header *header)
{
    int local_rank = shm_local_rank(shm, rank);
    drain(shm, rank); /* the previous message is complete in the FIFO, or was withdrawn */
    struct transport_memory *memory = find_exposed(shm, rank, header->ref);
    if (memory == NULL) return; /* the receive has been withdrawn */
    if (find_incoming(shm, rank) != NULL || header->bytes != memory->request->bytes ||
        !shm_fifo_open(shm, local_rank, header->id - 1, header->bytes)) {
        shm_drop(shm, local_rank, "it streamed a message whose size or position does not fit its receive", true);
        return;
    }
    move_memory(&shm->incoming, memory);
    copy_out(shm, memory);
}

/* Completes an empty write too: its SHM_STREAM alone completes it, and the peer may have received that. */
void shm_stream_finish(struct shm *shm, int32_t rank)
{
    drain(shm, rank);
    struct transport_write *write = first_write(shm, rank);
    if (write != NULL && write->bytes == 0) copy_in(shm, write);
}

/* ---- progress ---------------------------------------------------------------------------------------------- */

static int move_all(struct shm *shm)
{
    struct transport_write *write, *next_write;
    struct transport_memory *memory, *next_memory;
    int moved = 0;
    for (write = TAILQ_FIRST(&shm->writes); write != NULL; write = next_write) {
        next_write = TAILQ_NEXT(write, entry);
        moved += copy_in(shm, write);
    }
    for (memory = TAILQ_FIRST(&shm->incoming); memory != NULL; memory = next_memory) {
        next_memory = TAILQ_NEXT(memory, entry);
        moved += copy_out(shm, memory);
    }
    return moved;
}

static bool is_streaming(const struct shm *shm)
{
    return !TAILQ_EMPTY(&shm->writes) || !TAILQ_EMPTY(&shm->incoming);
}

/* Keeps copying while the other end keeps up.  Called only if this rank has a core. */
static int keep_streaming(struct shm *shm)
{
    enum { TURNS = 64 };
    int moved = 0, misses = 0;
    for (int i = 0; i < TURNS && misses < shm->polls && is_streaming(shm); i++) {
        int now = move_all(shm);
        misses = now > 0 ? 0 : misses + 1;
        moved += now;
        if (now == 0) shm_relax();
    }
    shm_polled(shm, moved > 0);
    return moved;
}

int shm_stream_progress(struct shm *shm)
{
    if (!is_streaming(shm)) return 0;
    int moved = move_all(shm);
    return shm->shares_cores || !is_streaming(shm) ? moved : moved + keep_streaming(shm);
}
