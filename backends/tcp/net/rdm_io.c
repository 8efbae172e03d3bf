/* Datagram endpoints: messages, pieces of writes and completions. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tcp/net/rdm.h"

enum { BATCH = 32 };

/* ---- sending ------------------------------------------------------------------------------------------------- */

/* Records the provider's error.  The next progress call drops the link, because a sender does not expect the loss
 * within its call.  A link that is not up yet tries again. */
static void record_failure(struct fabric_link *link, int error)
{
    link->fabric->rdm.retry = true;
    if (link->state == FABRIC_UP && link->rdm.failed == 0) link->rdm.failed = error;
}

static size_t pack(uint8_t *out, const struct wire_envelope *envelope, const struct rdm_parts *parts)
{
    wire_envelope_encode(out, envelope);
    out += WIRE_ENVELOPE;
    if (parts->first_bytes > 0) memcpy(out, parts->first, parts->first_bytes);
    tutti_copy(out + parts->first_bytes, parts->second, parts->second_bytes);
    return WIRE_ENVELOPE + parts->first_bytes + parts->second_bytes;
}

static int inject(struct fabric_link *link, const struct wire_envelope *envelope, const struct rdm_parts *parts)
{
    uint8_t small[RDM_INJECT];
    size_t n = pack(small, envelope, parts);
    return (int)fi_inject(link->fabric->rdm.ep, small, n, link->rdm.address);
}

static int send_buffer(struct fabric_link *link, const struct wire_envelope *envelope, const struct rdm_parts *parts,
                       struct transport_write *write)
{
    struct rdm_fabric *rdm = &link->fabric->rdm;
    struct rdm_buffer *buffer = TAILQ_FIRST(&rdm->spare);
    if (buffer != NULL)
        TAILQ_REMOVE(&rdm->spare, buffer, entry);
    else
        buffer = rdm_buffer_new(link->fabric);
    if (buffer == NULL) return -FI_ENOMEM;
    size_t n = pack(buffer->data, envelope, parts);
    buffer->link = link;
    buffer->write = write;
    buffer->bytes = parts->first_bytes;
    buffer->sequence = envelope->sequence;
    void *descriptor = buffer->region != NULL ? fi_mr_desc(buffer->region) : NULL;
    int status = (int)fi_send(rdm->ep, buffer->data, n, descriptor, link->rdm.address, buffer);
    if (status != 0) {
        TAILQ_INSERT_HEAD(&rdm->spare, buffer, entry);
        return status;
    }
    TAILQ_INSERT_TAIL(&link->rdm.in_flight, buffer, entry);
    link->rdm.n_in_flight++;
    return 0;
}

int rdm_post(struct fabric_link *link, struct wire_envelope envelope, const struct rdm_parts *parts,
             struct transport_write *write)
{
    bool is_handshake = envelope.kind == WIRE_HELLO || envelope.kind == WIRE_WELCOME;
    size_t n = WIRE_ENVELOPE + parts->first_bytes + parts->second_bytes;
    envelope.from = (uint32_t)link->fabric->config.rank;
    envelope.session = is_handshake ? 0 : link->rdm.session_out;
    envelope.sequence = is_handshake ? 0 : link->rdm.sent + 1;
    int status = write == NULL && n <= link->fabric->rdm.inject ? inject(link, &envelope, parts)
                                                                : send_buffer(link, &envelope, parts, write);
    if (status != 0) {
        link->fabric->rdm.retry = true;
        transport_count_retry(&link->fabric->config);
        if (status != -FI_EAGAIN) record_failure(link, -status);
        return status;
    }
    link->rdm.sent += !is_handshake;
    link->rdm.has_sent = true;
    return 0;
}

/* True if another buffer may be posted: the link has few buffers in the provider, and fewer than RDM_WINDOW messages
 * may overtake the oldest one. */
static bool may_post(const struct fabric_link *link)
{
    const struct rdm_buffer *oldest = TAILQ_FIRST(&link->rdm.in_flight);
    if (oldest == NULL) return true;
    return link->rdm.n_in_flight < RDM_IN_FLIGHT_MAX && link->rdm.sent + 1 - oldest->sequence < RDM_WINDOW;
}

static int post_message(struct fabric_link *link, const struct rdm_parts *parts)
{
    if (!may_post(link)) return -FI_EAGAIN;
    return rdm_post(link, (struct wire_envelope){.kind = WIRE_MESSAGE}, parts, NULL);
}

/* Sends a message after all waiting messages. */
static int rdm_send(struct transport *transport, int32_t rank, const struct transport_header *header,
                    const void *payload, size_t bytes)
{
    struct fabric *fabric = fabric_of(transport);
    struct fabric_link *link = fabric->link[rank];
    uint8_t encoded[WIRE_HEADER];
    struct rdm_parts parts = {encoded, payload, WIRE_HEADER, bytes};
    wire_encode(encoded, header);
    if (link != NULL && link->state == FABRIC_UP && STAILQ_EMPTY(&link->waiting) && post_message(link, &parts) == 0)
        return TUTTI_OK;
    return fabric_send_later(fabric, rank, encoded, payload, bytes);
}

int rdm_queue_answer(struct fabric_link *link, enum wire_envelope_kind kind, uint64_t key)
{
    struct wire_envelope envelope = {.kind = (uint8_t)kind, .key = key};
    struct fabric_buffer *buffer = fabric_copy(link->fabric, &envelope, sizeof envelope, NULL, 0);
    if (buffer == NULL) return fabric_out_of_memory(link->fabric);
    buffer->kind = FABRIC_ANSWER;
    STAILQ_INSERT_TAIL(&link->waiting, buffer, entry);
    return TUTTI_OK;
}

static int post_answer(struct fabric_link *link, const struct fabric_buffer *buffer)
{
    const struct rdm_parts empty = {0};
    struct wire_envelope envelope;
    if (!may_post(link)) return -FI_EAGAIN;
    memcpy(&envelope, buffer->data, sizeof envelope);
    return rdm_post(link, envelope, &empty, NULL);
}

static bool post_waiting(struct fabric_link *link)
{
    struct fabric_buffer *buffer;
    while ((buffer = STAILQ_FIRST(&link->waiting)) != NULL) {
        struct rdm_parts parts = {.first = buffer->data, .first_bytes = buffer->bytes};
        int status = buffer->kind == FABRIC_ANSWER ? post_answer(link, buffer) : post_message(link, &parts);
        if (status != 0) return false;
        STAILQ_REMOVE_HEAD(&link->waiting, entry);
        fabric_release(link->fabric, buffer);
    }
    return true;
}

static int post_piece(struct fabric_link *link, struct transport_write *write)
{
    size_t left = write->bytes - write->posted, bytes = left < RDM_PIECE ? left : RDM_PIECE;
    struct rdm_parts parts = {.first = (const uint8_t *)write->data + write->posted, .first_bytes = bytes};
    struct wire_envelope envelope = {.kind = WIRE_PIECE, .key = write->key, .offset = write->posted};
    int status = rdm_post(link, envelope, &parts, write);
    if (status == 0) write->posted += bytes;
    return status;
}

static void rdm_post_writes(struct fabric_link *link)
{
    struct transport_write *write;
    if (link->state != FABRIC_UP || !STAILQ_EMPTY(&link->waiting)) return;
    while ((write = TAILQ_FIRST(&link->writes)) != NULL && may_post(link)) {
        if ((rdm_is_offered(link, write) ? rdm_post_offer(link, write) : post_piece(link, write)) != 0) return;
        if (write->offer == NULL && write->posted == write->bytes) fabric_unqueue(link, write);
    }
}

void rdm_flush(struct fabric_link *link)
{
    if (rdm_send_due(link) == 0 && link->state == FABRIC_UP && post_waiting(link)) rdm_post_writes(link);
}

/* ---- exposed memory ------------------------------------------------------------------------------------------ */

static struct rdm_regions *regions_of(struct fabric *fabric, uint64_t key)
{
    return &fabric->rdm.regions[key % FABRIC_REGIONS];
}

static int rdm_expose(struct fabric *fabric, void *data, size_t bytes, struct transport_memory *memory)
{
    struct rdm_region *region = malloc(sizeof *region);
    if (region == NULL)
        return fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory to receive a message of %zu bytes", bytes);
    *region = (struct rdm_region){.key = memory->key, .rank = memory->rank, .data = data, .bytes = bytes};
    LIST_INSERT_HEAD(regions_of(fabric, memory->key), region, entry);
    memory->handle = region;
    return TUTTI_OK;
}

static void rdm_conceal(struct transport_memory *memory)
{
    struct rdm_region *region = memory->handle;
    if (region->reading != NULL) rdm_stop_reading(region->reading);
    LIST_REMOVE(region, entry);
    free(region);
}

/* Returns the memory that is exposed to the link's peer under this key, or NULL. */
static struct rdm_region *find_region(const struct fabric_link *link, uint64_t key)
{
    struct rdm_region *region;
    LIST_FOREACH(region, regions_of(link->fabric, key), entry)
    {
        if (region->key == key && region->rank == link->rank) break;
    }
    return region;
}

/* Handles a piece of a write.  Pieces arrive in order.  A piece for memory that has been concealed is ignored. */
static void handle_piece(struct fabric_link *link, const struct wire_envelope *envelope, const uint8_t *data, size_t n)
{
    struct fabric *fabric = link->fabric;
    struct rdm_region *region = find_region(link, envelope->key);
    if (region == NULL) return;
    if (region->reading != NULL || envelope->offset != region->landed || n > region->bytes - region->landed) {
        fabric_drop(fabric, link->rank, "it wrote outside the exposed memory", true);
        return;
    }
    tutti_copy(region->data + region->landed, data, n);
    region->landed += n;
    if (region->landed == region->bytes) fabric->config.events->written(fabric->config.user, envelope->key);
}

/* ---- receiving ----------------------------------------------------------------------------------------------- */

static void deliver(struct fabric_link *link, const struct wire_envelope *envelope, const uint8_t *data, size_t n)
{
    struct fabric *fabric = link->fabric;
    const uint8_t *content = data + WIRE_ENVELOPE;
    rdm_count_received(link);
    if (envelope->kind == WIRE_MESSAGE)
        fabric_deliver(fabric, content, n - WIRE_ENVELOPE);
    else if (envelope->kind == WIRE_PIECE)
        handle_piece(link, envelope, content, n - WIRE_ENVELOPE);
    else if (envelope->kind == WIRE_END)
        fabric_drop(fabric, link->rank, "connection closed", true);
    else if (envelope->kind == WIRE_OFFER)
        rdm_handle_offer(link, find_region(link, envelope->key), envelope->key, content, n - WIRE_ENVELOPE);
    else if (envelope->kind != WIRE_HEARTBEAT)
        rdm_handle_answer(link, envelope);
}

static struct wire_envelope envelope_of(const struct fabric_buffer *buffer)
{
    struct wire_envelope envelope = {0};
    wire_envelope_parse(buffer->data, buffer->bytes, UINT32_MAX,
                        &envelope); /* valid: checked when the message arrived */
    return envelope;
}

/* Keeps a message until its turn, in order of sequence. */
static void keep_early(struct fabric_link *link, uint64_t sequence, const uint8_t *data, size_t n)
{
    struct fabric_buffer *buffer = fabric_copy(link->fabric, data, n, NULL, 0), *before = NULL, *at;
    if (buffer == NULL) {
        fabric_drop(link->fabric, link->rank, "no memory for its messages", true);
        return;
    }
    STAILQ_FOREACH(at, &link->rdm.early, entry)
    {
        if (envelope_of(at).sequence > sequence) break;
        before = at;
    }
    if (before != NULL)
        STAILQ_INSERT_AFTER(&link->rdm.early, before, buffer, entry);
    else
        STAILQ_INSERT_HEAD(&link->rdm.early, buffer, entry);
}

/* Delivers the early messages whose turn has come.  A duplicate stays here forever, which ends the link. */
static void deliver_early(struct fabric_link *link)
{
    struct fabric_buffer *buffer;
    while (link->state == FABRIC_UP && (buffer = STAILQ_FIRST(&link->rdm.early)) != NULL) {
        struct wire_envelope envelope = envelope_of(buffer);
        if (envelope.sequence != link->rdm.received + 1) return;
        STAILQ_REMOVE_HEAD(&link->rdm.early, entry);
        deliver(link, &envelope, buffer->data, buffer->bytes);
        fabric_release(link->fabric, buffer);
    }
}

static void handle_message(struct fabric *fabric, const uint8_t *data, size_t n)
{
    struct wire_envelope envelope;
    if (!wire_envelope_parse(data, n, (uint32_t)fabric->config.world_size, &envelope) ||
        envelope.from == (uint32_t)fabric->config.rank) {
        TUTTI_LOG_AS(fabric->config.host, "net", 3, "tcp: dropped a malformed message of %zu bytes", n);
        return;
    }
    if (envelope.kind == WIRE_HELLO || envelope.kind == WIRE_WELCOME) {
        rdm_handle_handshake(fabric, &envelope, data + WIRE_ENVELOPE, n - WIRE_ENVELOPE);
    } else if (rdm_belongs_to_link(fabric, &envelope)) {
        struct fabric_link *link = fabric->link[envelope.from];
        if (envelope.sequence != link->rdm.received + 1) {
            keep_early(link, envelope.sequence, data, n);
            return;
        }
        deliver(link, &envelope, data, n);
        deliver_early(link);
    }
}

/* Posts a receive buffer.  The buffer is on `receives` while the provider has it. */
int rdm_post_receive(struct fabric *fabric, struct rdm_buffer *buffer)
{
    void *descriptor = buffer->region != NULL ? fi_mr_desc(buffer->region) : NULL;
    return (int)fi_recv(fabric->rdm.ep, buffer->data, sizeof buffer->data, descriptor, FI_ADDR_UNSPEC, buffer);
}

static void post_again(struct fabric *fabric, struct rdm_buffer *buffer)
{
    if (rdm_post_receive(fabric, buffer) == 0) return;
    TAILQ_REMOVE(&fabric->rdm.receives, buffer, entry);
    TAILQ_INSERT_TAIL(&fabric->rdm.unposted, buffer, entry);
    fabric->rdm.retry = true;
}

/* ---- completions --------------------------------------------------------------------------------------------- */

static void finish_send(struct fabric *fabric, struct rdm_buffer *buffer)
{
    struct fabric_link *link = buffer->link;
    struct transport_write *write = buffer->write;
    size_t bytes = buffer->bytes;
    TAILQ_REMOVE(&link->rdm.in_flight, buffer, entry);
    TAILQ_INSERT_HEAD(&fabric->rdm.spare, buffer, entry);
    link->rdm.n_in_flight--;
    rdm_flush(link); /* before the event, to keep the network busy */
    if (write == NULL) return;
    write->landed += bytes;
    if (write->landed >= write->bytes) fabric->config.events->write_done(fabric->config.user, write);
}

static void handle_error(struct fabric *fabric)
{
    struct fi_cq_err_entry error = {0};
    if (fi_cq_readerr(fabric->cq, &error, 0) < 0 || error.op_context == NULL) return;
    struct rdm_buffer *buffer = error.op_context;
    if (buffer->link == NULL) { /* ignore a truncated message: no rank sends such messages */
        post_again(fabric, buffer);
        return;
    }
    record_failure(buffer->link, error.err);
    buffer->write = NULL;
    finish_send(fabric, buffer);
}

static int read_completions(struct fabric *fabric)
{
    struct fi_cq_msg_entry entry[BATCH];
    errno = 0;
    ssize_t n = fi_cq_read(fabric->cq, entry, BATCH);
    if (n == -FI_EAVAIL) {
        handle_error(fabric);
        return 1;
    }
    for (ssize_t i = 0; i < n; i++) {
        struct rdm_buffer *buffer = entry[i].op_context;
        if (buffer == NULL) continue;
        if (buffer->link != NULL) {
            finish_send(fabric, buffer);
            continue;
        }
        handle_message(fabric, buffer->data, entry[i].len);
        post_again(fabric, buffer);
    }
    return n > 0 ? (int)n : 0;
}

/* Posts buffers that the provider had no space for, and drops links on which it reported an error. */
static void retry(struct fabric *fabric)
{
    struct rdm_buffer *buffer;
    fabric->rdm.retry = false;
    while ((buffer = TAILQ_FIRST(&fabric->rdm.unposted)) != NULL) {
        if (rdm_post_receive(fabric, buffer) != 0) {
            fabric->rdm.retry = true;
            break;
        }
        TAILQ_REMOVE(&fabric->rdm.unposted, buffer, entry);
        TAILQ_INSERT_TAIL(&fabric->rdm.receives, buffer, entry);
    }
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        if (link->state == FABRIC_IDLE || link->state == FABRIC_LOST) continue;
        if (link->rdm.failed != 0)
            fabric_drop(fabric, link->rank, fabric_library.strerror(link->rdm.failed), true);
        else
            rdm_flush(link);
    }
}

static int rdm_progress(struct fabric *fabric)
{
    int moved = read_completions(fabric);
    if (!TAILQ_EMPTY(&fabric->rdm.readings)) moved += rdm_progress_reads(fabric);
    if (fabric->rdm.retry) retry(fabric);
    if (rdm_is_tick(fabric)) rdm_tick(fabric);
    if (moved > 0) fabric->rdm.nap_us = 0;
    return moved;
}

static bool rdm_is_busy(const struct fabric_link *link)
{
    return link->state == FABRIC_UP && (link->rdm.n_in_flight > 0 || link->rdm.n_offers > 0);
}

const struct fabric_kind rdm_kind = {.find = rdm_find,
                                     .open = rdm_open,
                                     .close = rdm_close,
                                     .read_entry = rdm_read_entry,
                                     .connect = rdm_connect,
                                     .end = rdm_end,
                                     .is_busy = rdm_is_busy,
                                     .send = rdm_send,
                                     .post_writes = rdm_post_writes,
                                     .expose = rdm_expose,
                                     .conceal = rdm_conceal,
                                     .progress = rdm_progress,
                                     .arm = rdm_arm,
                                     .uses_rma = rdm_uses_rma};
