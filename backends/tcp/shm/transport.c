/* Shared memory as a transport: the table, and single-copy reads.
 *
 * A large message takes one of two paths (message_path.c).  The receiver reads the sender's memory, with one copy, if
 * process_vm_readv is permitted or if it maps the memory (tutti_alloc).  Otherwise the sender copies the message into
 * the ring's FIFO while the receiver copies it out (stream.c), with two copies that overlap.
 *
 * The second path is also taken if measurements favor it where ranks share cores (offers.c), or where the sender is
 * blocked on this message (choice.h).  Then the FIFO stays cached, two cores share the work, and large messages are
 * stored non-temporally, which the kernel does not do.  If two ranks with a core each send to each other at once, this
 * path is slower.  See docs/benchmarks/shared-memory.md.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tcp/shm/offers.h"

static struct shm *shm_of(const struct transport *transport)
{
    return (struct shm *)(uintptr_t)transport; /* the transport is its first member */
}

static struct shm_peer *peer_of(const struct transport *transport, int32_t rank)
{
    struct shm *shm = shm_of(transport);
    return &shm->peer[shm->local_rank_of[rank]];
}

/* ---- links ------------------------------------------------------------------------------------------------- */

static bool reaches(const struct transport *transport, int32_t rank)
{
    return shm_of(transport)->local_rank_of[rank] >= 0;
}

static int check_link(struct transport *transport, int32_t rank)
{
    const struct shm_peer *peer = peer_of(transport, rank);
    if (!peer->lost) return TUTTI_OK;
    return shm_of(transport)->config.host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: %s", rank, peer->why);
}

static bool is_up(const struct transport *transport, int32_t rank)
{
    return !peer_of(transport, rank)->lost;
}

static const char *why_lost(const struct transport *transport, int32_t rank)
{
    const struct shm_peer *peer = peer_of(transport, rank);
    return peer->lost ? peer->why : NULL;
}

static bool is_flushed(const struct transport *transport, int32_t rank)
{
    return STAILQ_EMPTY(&peer_of(transport, rank)->waiting);
}

static void drop(struct transport *transport, int32_t rank, const char *why, bool notify)
{
    shm_drop(shm_of(transport), shm_of(transport)->local_rank_of[rank], why, notify);
}

/* ---- messages ---------------------------------------------------------------------------------------------- */

static int send_message(struct transport *transport, int32_t rank, const struct transport_header *header,
                        const void *payload, size_t bytes)
{
    struct shm *shm = shm_of(transport);
    return shm_send(shm, shm->local_rank_of[rank], header, payload, bytes);
}

static bool unsend(struct transport *transport, int32_t rank, uint8_t kind, uint64_t id)
{
    return shm_unsend(shm_of(transport), shm_of(transport)->local_rank_of[rank], kind, id);
}

/* Handles a message of any peer.  Each has its turn. */
static __attribute__((noinline)) int read_any(struct shm *shm)
{
    for (int i = 0; i < shm->n; i++) {
        shm->next_any = shm->next_any + 1 < shm->n ? shm->next_any + 1 : 0;
        if (!shm->peer[shm->next_any].lost && shm_read(shm, shm->next_any, 1) != 0) return 1;
    }
    return 0;
}

static int read_one(struct shm *shm, int32_t rank)
{
    return rank == TUTTI_ANY_SOURCE ? read_any(shm) : shm_read(shm, shm->local_rank_of[rank], 1);
}

static bool poll_peer(struct transport *transport, int32_t rank, bool waits)
{
    struct shm *shm = shm_of(transport);
    int found = read_one(shm, rank);
    if (found != 0 || !waits) return found != 0;
    for (int i = 0; i < shm->polls && found == 0; i++) {
        shm_pause(shm);
        found = read_one(shm, rank);
    }
    shm_polled(shm, found != 0);
    if (found == 0) shm_settle(shm);
    return found != 0;
}

/* ---- large messages ---------------------------------------------------------------------------------------- */

static enum transport_path choose(struct transport *transport, int32_t rank, const tutti_request *request,
                                  bool may_eager, bool blocked, const tutti_path_row *row)
{
    struct shm *shm = shm_of(transport);
    return shm_choose_path(shm, shm->local_rank_of[rank], request, may_eager, blocked, row);
}

static void hear(struct transport *transport, int32_t rank, size_t bytes, enum transport_path path)
{
    struct shm *shm = shm_of(transport);
    shm_hear_path(shm, shm->local_rank_of[rank], bytes, path);
}

static bool reads(struct transport *transport, int32_t rank, const tutti_request *request)
{
    struct shm *shm = shm_of(transport);
    return shm_reads_offer(shm, shm->local_rank_of[rank], request);
}

/* Reads a part of a message into the request's memory, or reduces it there if the request asks for that. */
static bool read_part(struct shm *shm, int local_rank, const tutti_request *request, size_t at, uint64_t from,
                      size_t bytes)
{
    char *data = (char *)request->data + at;
    if (request->addend == NULL) return shm_read_verified(shm, local_rank, data, from + at, bytes);
    const void *source = shm_arena_at(shm, local_rank, from + at, bytes);
    if (source == NULL) {
        void *copy = request->addend != request->data ? data : shm->scratch;
        if (!shm_read_verified(shm, local_rank, copy, from + at, bytes)) return false;
        source = copy;
    }
    tutti_request_take(shm->config.host, request, at, source, bytes);
    return true;
}

static bool read_message(struct transport *transport, int32_t rank, tutti_request *request, size_t at, uint64_t from,
                         size_t bytes)
{
    struct shm *shm = shm_of(transport);
    int local_rank = shm->local_rank_of[rank];
    bool is_last = at + bytes == request->bytes;
    int64_t begin_ns = shm_offer_begin(shm, local_rank, request, SHM_OFFER_READ);
    if (begin_ns != 0 && shm_arena_at(shm, local_rank, from + at, bytes) != NULL) begin_ns = 0; /* it is mapped */
    if (!read_part(shm, local_rank, request, at, from, bytes) || (is_last && shm_has_closed(shm, local_rank))) {
        shm_unreadable(shm, local_rank);
        return false;
    }
    shm_offer_end(shm, local_rank, SHM_OFFER_READ, begin_ns, bytes);
    return true;
}

static int expose(struct transport *transport, int32_t rank, struct transport_memory *memory)
{
    shm_expose(shm_of(transport), rank, memory);
    return TUTTI_OK;
}

static void conceal(struct transport_memory *memory)
{
    shm_conceal(shm_of(memory->transport), memory);
}

static void write_message(struct transport *transport, int32_t rank, struct transport_write *write)
{
    shm_write(shm_of(transport), rank, write);
}

static bool unwrite(struct transport *transport, int32_t rank, struct transport_write *write)
{
    (void)rank;
    return shm_unwrite(shm_of(transport), write);
}

/* Returns false: unwrite withdraws every write that is under way, so there is nothing to cut. */
static bool cut(struct transport *transport, int32_t rank, struct transport_write *write)
{
    (void)transport, (void)rank, (void)write;
    return false;
}

/* ---- the table --------------------------------------------------------------------------------------------- */

enum { SPREAD_EVERY = 16 }; /* idle rounds between looks at the cores */

/* Looks at the cores now and then while nothing moves, and after a wake-up: the peer may have been woken on this one,
 * and may always arrive first. */
static void look_at_cores(struct shm *shm, bool idle)
{
    bool has_rung = shm->has_rung;
    shm->has_rung = false;
    if (idle) shm->pauses++;
    if (!shm->shares_cores && (has_rung || shm->pauses % SPREAD_EVERY == 0))
        shm_affinity_spread(shm);
    else if (shm->shares_cores && idle && shm->pauses % SHM_RESTORE_EVERY == 0)
        shm_affinity_restore(shm);
}

static int progress(struct transport *transport)
{
    struct shm *shm = shm_of(transport);
    shm->turns++;
    int moved = shm_progress(shm);
    moved += shm_stream_progress(shm);
    shm_settle(shm);
    if (moved == 0 || shm->has_rung) look_at_cores(shm, moved == 0);
    return moved;
}

static int arm(struct transport *transport, int *descriptors)
{
    return shm_arm(shm_of(transport), descriptors);
}

static int describe(const struct transport *transport, char *text, size_t capacity)
{
    const struct shm *shm = shm_of(transport);
    int others = 0;
    for (int i = 0; i < shm->n; i++) /* a rank may have been excluded */
        others += i != shm->local_rank && shm_local_rank(shm, shm->peer[i].rank) >= 0;
    return snprintf(text, capacity, "tcp: rank %d shares memory with %d of %d ranks; messages above %zu bytes are %s\n",
                    shm->config.rank, others, shm->config.world_size - 1, shm->transport.eager_certain,
                    shm->can_read_memory ? "read from the sender's memory, or copied through it where that is faster"
                                         : "copied through it");
}

static void close_all(struct transport *transport)
{
    shm_close(shm_of(transport));
}

static const struct transport_ops ops = {.reaches = reaches,
                                         .connect = check_link,
                                         .is_up = is_up,
                                         .lost = why_lost,
                                         .is_flushed = is_flushed,
                                         .drop = drop,
                                         .send = send_message,
                                         .unsend = unsend,
                                         .expose = expose,
                                         .conceal = conceal,
                                         .write = write_message,
                                         .unwrite = unwrite,
                                         .cut = cut,
                                         .choose = choose,
                                         .hear = hear,
                                         .reads = reads,
                                         .read = read_message,
                                         .poll = poll_peer,
                                         .progress = progress,
                                         .arm = arm,
                                         .describe = describe,
                                         .close = close_all};

struct transport *shm_transport(struct shm *shm)
{
    TAILQ_INIT(&shm->writes);
    TAILQ_INIT(&shm->exposed);
    TAILQ_INIT(&shm->incoming);
    shm->scratch = malloc(TRANSPORT_REDUCE_MAX);
    if (shm->scratch == NULL) {
        shm->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for a scratch buffer of %d bytes",
                                TRANSPORT_REDUCE_MAX);
        return NULL;
    }
    tutti_counters *counters = shm->config.counters;
    if (counters != NULL) counters->memory += shm->bytes_at;
    size_t eager_max = shm->ring_bytes / 2 < TRANSPORT_PAYLOAD_MAX ? shm->ring_bytes / 2 : TRANSPORT_PAYLOAD_MAX;
    shm->transport = (struct transport){.ops = &ops,
                                        .eager_certain = eager_max < SHM_EAGER_MAX ? eager_max : SHM_EAGER_MAX,
                                        .eager_max = eager_max,
                                        .copies_out = true,
                                        .delivers_late = true,
                                        .traffic = counters != NULL ? &counters->shared : NULL};
    return &shm->transport;
}
