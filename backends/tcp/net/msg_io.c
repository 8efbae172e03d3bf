/* Connected endpoints: messages, writes and completions. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tcp/net/msg.h"

enum {
    INJECT = 128,
    BATCH = 32,
    EVENTS_EVERY = 64,
    STRIPED_MIN = 256 << 10, /* bytes of the smallest message that uses several connections */
    TAIL = 4096              /* bytes of the piece that ends a part */
};

/* ---- receiving ----------------------------------------------------------------------------------------------- */

static struct fabric_buffer *receive_at(struct fabric *fabric, int i)
{
    size_t stride = (sizeof(struct fabric_buffer) + FABRIC_MESSAGE + 63) / 64 * 64;
    return (void *)((uint8_t *)fabric->msg.receives + (size_t)i * stride);
}

/* Posts a receive buffer.  A used buffer is posted again at once: a message without a buffer would keep the queue's
 * descriptor ready and block the link. */
static int post(struct fabric *fabric, struct fabric_buffer *buffer)
{
    return (int)fi_recv(fabric->msg.srx, buffer->data, FABRIC_MESSAGE, NULL, 0, buffer);
}

int msg_post_receives(struct fabric *fabric)
{
    const tutti_host *host = fabric->config.host;
    size_t stride = (sizeof(struct fabric_buffer) + FABRIC_MESSAGE + 63) / 64 * 64;
    void *memory = NULL;
    if (posix_memalign(&memory, 64, stride * FABRIC_RECEIVES) != 0)
        return host->error(TUTTI_ERR_NO_MEMORY, "no memory for %d receive buffers", FABRIC_RECEIVES);
    fabric->msg.receives = memory;
    for (int i = 0; i < FABRIC_RECEIVES; i++) {
        struct fabric_buffer *buffer = receive_at(fabric, i);
        *buffer = (struct fabric_buffer){.kind = FABRIC_RECEIVED};
        int status = post(fabric, buffer);
        if (status != 0)
            return host->error(TUTTI_ERR_BACKEND, "libfabric: fi_recv failed: %s", fabric_library.strerror(-status));
    }
    return TUTTI_OK;
}

/* ---- sending ------------------------------------------------------------------------------------------------- */

/* Sends a copy.  The provider reads it until the kernel has taken all of it.  A completion costs two more system calls,
 * so only some copies ask for one.  Copies leave in order, so a completion frees the earlier copies too. */
static int send_copy(struct fabric_link *link, struct fabric_buffer *buffer)
{
    buffer->link = link;
    struct iovec part = {buffer->data, buffer->bytes};
    struct fi_msg message = {.msg_iov = &part, .iov_count = 1, .context = buffer};
    bool signal = ++link->msg.unsignalled >= FABRIC_SIGNAL_EVERY;
    ssize_t status = fi_sendmsg(link->msg.first.ep, &message, signal ? FI_COMPLETION : 0);
    if (status != 0) {
        fabric_release(link->fabric, buffer);
        return link->fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "libfabric: fi_sendmsg failed: %s",
                                                fabric_library.strerror((int)-status));
    }
    STAILQ_INSERT_TAIL(&link->msg.sent, buffer, entry);
    if (signal) link->msg.unsignalled = 0;
    return TUTTI_OK;
}

static int send_now(struct fabric_link *link, const void *header, size_t header_bytes, const void *payload,
                    size_t bytes)
{
    struct fabric *fabric = link->fabric;
    fabric_watch(fabric);
    if (header_bytes + bytes <= INJECT) {
        uint8_t small[INJECT];
        memcpy(small, header, header_bytes);
        if (bytes > 0) memcpy(small + header_bytes, payload, bytes);
        return fi_inject(link->msg.first.ep, small, header_bytes + bytes, 0) == 0 ? TUTTI_OK
                                                                                  : fabric_out_of_memory(fabric);
    }
    struct fabric_buffer *buffer = fabric_copy(fabric, header, header_bytes, payload, bytes);
    return buffer == NULL ? fabric_out_of_memory(fabric) : send_copy(link, buffer);
}

static int msg_send(struct transport *transport, int32_t rank, const struct transport_header *header,
                    const void *payload, size_t bytes)
{
    struct fabric *fabric = fabric_of(transport);
    struct fabric_link *link = fabric->link[rank];
    uint8_t encoded[WIRE_HEADER];
    wire_encode(encoded, header);
    if (link == NULL || link->state != FABRIC_UP || link->msg.fences > 0 || (header->after_writes && msg_fence(link)))
        return fabric_send_later(fabric, rank, encoded, payload, bytes);
    return send_now(link, encoded, WIRE_HEADER, payload, bytes);
}

static void msg_post_writes(struct fabric_link *link);

void msg_flush_waiting(struct fabric_link *link)
{
    struct fabric_buffer *buffer;
    while ((buffer = STAILQ_FIRST(&link->waiting)) != NULL && link->state == FABRIC_UP && link->msg.fences == 0) {
        STAILQ_REMOVE_HEAD(&link->waiting, entry);
        int status = send_now(link, buffer->data, buffer->bytes, NULL, 0);
        fabric_release(link->fabric, buffer);
        if (status != TUTTI_OK) {
            fabric_drop(link->fabric, link->rank, "no memory to send the messages that waited for the connection",
                        true);
            return;
        }
    }
    msg_post_writes(link);
}

static void release_copies(struct fabric_link *link, const struct fabric_buffer *last)
{
    struct fabric_buffer *buffer;
    while ((buffer = STAILQ_FIRST(&link->msg.sent)) != NULL) {
        STAILQ_REMOVE_HEAD(&link->msg.sent, entry);
        fabric_release(link->fabric, buffer);
        if (buffer == last) return;
    }
}

/* ---- writing ------------------------------------------------------------------------------------------------- */

/* Returns the number of connections over which the peer sends a message.  Each one notifies this rank. */
static uint8_t count_parts(const struct fabric_link *link, size_t bytes)
{
    if (link == NULL || bytes < STRIPED_MIN || link->msg.up == 0) return 1;
    return (uint8_t)__builtin_popcount(link->msg.up);
}

static int msg_expose(struct fabric *fabric, void *data, size_t bytes, struct transport_memory *memory)
{
    struct fid_mr *region = NULL;
    if (bytes == 0) { /* libfabric does not allow an empty region: see post_chunk */
        data = &fabric->msg.zero_byte;
        bytes = 1;
    }
    int status = fi_mr_reg(fabric->domain, data, bytes, FI_REMOTE_WRITE, 0, memory->key, 0, &region, NULL);
    if (status != 0)
        return fabric->config.host->error(TUTTI_ERR_BACKEND, "libfabric: fi_mr_reg of %zu bytes failed: %s", bytes,
                                          fabric_library.strerror(-status));
    memory->handle = region;
    memory->parts = count_parts(fabric->link[memory->rank], bytes);
    return TUTTI_OK;
}

static void msg_conceal(struct transport_memory *memory)
{
    fi_close(&((struct fid_mr *)memory->handle)->fid);
}

/* A write of one part goes over the first connection, and its last piece notifies the peer.  A write of several parts
 * goes over several connections.  Each takes the next piece when it has space.  At the end each posts one tail, which
 * notifies the peer: the connection's earlier pieces have arrived then.  Returns the number of bytes before the tails.
 */
static size_t bytes_before_tails(const struct transport_write *write)
{
    if (write->parts > 1) return write->bytes - write->parts * (size_t)TAIL;
    return write->bytes > 0 ? (write->bytes - 1) / FABRIC_CHUNK * FABRIC_CHUNK : 0;
}

/* Small pieces let connections of unequal speed end at about the same time.  Large ones cost less. */
static size_t piece_bytes(const struct transport_write *write)
{
    enum { EACH = 16, MIN = 64 << 10, MAX = 512 << 10 };
    if (write->parts == 1) return FABRIC_CHUNK;
    size_t bytes = write->bytes / ((size_t)write->parts * EACH);
    return bytes < MIN ? MIN : bytes > MAX ? MAX : bytes;
}

/* Chooses the connections of a write: the first and others that are up.  If there are fewer than parts, the first one
 * posts the surplus tails. */
static void choose_rails(const struct fabric_link *link, struct transport_write *write)
{
    int n = 0;
    if (write->parts == 0) write->parts = 1;
    for (int i = 0; i < FABRIC_RAILS && n < write->parts; i++) {
        if (!(link->msg.up & 1 << i)) continue;
        write->rails |= (uint8_t)(1 << i);
        n++;
    }
    write->tails = write->rails;
    write->surplus = (uint8_t)(write->parts - n);
}

/* Takes the next piece of the write for this connection.  Returns false if there is none for it. */
static bool take_piece(struct transport_write *write, const struct msg_rail *rail, size_t *bytes, bool *last)
{
    size_t begin = bytes_before_tails(write);
    uint8_t bit = (uint8_t)(1 << rail->index);
    if (!(write->rails & bit)) return false;
    *last = write->posted >= begin;
    if (!*last) {
        size_t left = begin - write->posted, piece = piece_bytes(write);
        *bytes = left < piece ? left : piece;
        return true;
    }
    if (!(write->tails & bit)) return false;
    *bytes = (write->bytes - begin) / write->parts;
    return true;
}

static void count_tail(struct transport_write *write, const struct msg_rail *rail)
{
    if (rail->index == 0 && write->surplus > 0)
        write->surplus--;
    else
        write->tails &= (uint8_t) ~(1 << rail->index);
}

/* Posts a piece of a write.  The last piece of a part notifies the peer.  Pieces keep the provider's queue short, so
 * that small messages need not wait for all of a large write. */
static bool post_chunk(struct msg_rail *rail, struct fabric_chunk *chunk, struct transport_write *write)
{
    size_t bytes;
    bool last;
    if (!take_piece(write, rail, &bytes, &last)) return false;
    struct iovec from = {(uint8_t *)(uintptr_t)write->data + write->posted, bytes};
    struct fi_rma_iov to = {write->posted, bytes, write->key};
    if (write->bytes == 0) {
        from = (struct iovec){&chunk->link->fabric->msg.zero_byte, 1};
        to.len = 1;
    }
    struct fi_msg_rma message = {
        .msg_iov = &from, .iov_count = 1, .rma_iov = &to, .rma_iov_count = 1, .context = chunk, .data = write->key};
    if (fi_writemsg(rail->ep, &message, FI_COMPLETION | (last ? FI_REMOTE_CQ_DATA : 0)) != 0) return false;
    fabric_watch(chunk->link->fabric);
    if (last) count_tail(write, rail);
    rail->is_written = true;
    chunk->is_busy = true;
    chunk->write = write;
    chunk->bytes = bytes;
    write->posted += bytes;
    return true;
}

/* Posts one piece of the oldest write that has one for this connection. */
static bool post_next(struct fabric_link *link, struct msg_rail *rail, struct fabric_chunk *chunk)
{
    struct transport_write *write;
    TAILQ_FOREACH(write, &link->writes, entry)
    {
        if (write->rails == 0) choose_rails(link, write);
        if (!post_chunk(rail, chunk, write)) continue;
        if (write->tails == 0) fabric_unqueue(link, write);
        return true;
    }
    return false;
}

/* Posts pieces on each connection in turn.  While a fence is under way only the first one takes pieces: the messages
 * that wait for the fence must follow all pieces of the others. */
static void msg_post_writes(struct fabric_link *link)
{
    for (int i = 0; i < FABRIC_CHUNKS; i++) {
        for (int r = 0; r < FABRIC_RAILS; r++) {
            if (TAILQ_EMPTY(&link->writes) || link->state != FABRIC_UP) return;
            if (!(link->msg.up & 1 << r) || (r > 0 && link->msg.fences > 0)) continue;
            struct msg_rail *rail = fabric_rail(link, r);
            if (!rail->chunk[i].is_busy) post_next(link, rail, &rail->chunk[i]);
        }
    }
}

static void finish_chunk(struct fabric_chunk *chunk)
{
    struct fabric_link *link = chunk->link;
    struct transport_write *write = chunk->write;
    size_t bytes = chunk->bytes;
    chunk->is_busy = false;
    chunk->write = NULL;
    msg_post_writes(link); /* before the event, to keep the network busy */
    if (write == NULL) return;
    write->landed += bytes;
    if (write->landed >= write->bytes) link->fabric->config.events->write_done(link->fabric->config.user, write);
}

/* ---- completions --------------------------------------------------------------------------------------------- */

static void handle_completion(struct fabric *fabric, const struct fi_cq_data_entry *entry)
{
    const struct transport_events *events = fabric->config.events;
    if (entry->flags & FI_REMOTE_WRITE) {
        events->written(fabric->config.user, entry->data);
        return;
    }
    uint8_t *context = entry->op_context;
    if (context == NULL) return;
    if (*context == FABRIC_RECEIVED) {
        struct fabric_buffer *buffer = (void *)context;
        if (entry->len > 0) fabric_deliver(fabric, buffer->data, entry->len); /* a fence is empty */
        post(fabric, buffer);
    } else if (*context == FABRIC_SENT) {
        struct fabric_buffer *buffer = (void *)context;
        release_copies(buffer->link, buffer);
    } else if (*context == FABRIC_FENCED) {
        msg_end_fence(((struct fabric_chunk *)(void *)context)->link);
    } else {
        finish_chunk((void *)context);
    }
}

/* Handles a failed operation.  A truncated receive is posted again.  A failed send or write needs nothing: its link is
 * about to be lost, and that frees its buffers. */
static void handle_error(struct fabric *fabric)
{
    struct fi_cq_err_entry error = {0};
    if (fi_cq_readerr(fabric->cq, &error, 0) < 0 || error.op_context == NULL || fabric->closing) return;
    uint8_t *context = error.op_context;
    if (*context == FABRIC_RECEIVED) {
        post(fabric, (void *)context);
    } else if (*context == FABRIC_CHUNK_WRITTEN) {
        struct fabric_chunk *chunk = (void *)context;
        chunk->is_busy = false;
    }
}

int msg_read_completions(struct fabric *fabric)
{
    struct fi_cq_data_entry entry[BATCH];
    errno = 0;
    ssize_t n = fi_cq_read(fabric->cq, entry, BATCH);
    if (n == -FI_EAVAIL) {
        handle_error(fabric);
        return 1;
    }
    for (ssize_t i = 0; i < n; i++) handle_completion(fabric, &entry[i]);
    return n > 0 ? (int)n : 0;
}

static bool msg_is_busy(const struct fabric_link *link)
{
    for (int r = 0; r < FABRIC_RAILS; r++) {
        const struct msg_rail *rail = r < link->fabric->rails.n ? fabric_rail((struct fabric_link *)link, r) : NULL;
        for (int i = 0; i < FABRIC_CHUNKS && rail != NULL; i++)
            if (rail->chunk[i].is_busy) return true;
    }
    return false;
}

static int msg_progress(struct fabric *fabric)
{
    int moved = msg_read_completions(fabric);
    if (fabric->msg.check_events || fabric->connecting > 0 || fabric->msg.rails_connecting > 0 ||
        ++fabric->polls % EVENTS_EVERY == 0) {
        fabric->msg.check_events = false; /* reset first, because the events may set it again */
        moved += msg_handle_events(fabric);
        if (fabric->connecting > 0 || fabric->msg.rails_connecting > 0) msg_check_deadlines(fabric);
        fabric_end_silent(fabric);
    }
    if (moved > 0) fabric->msg.arms = 0;
    return moved;
}

/* True if the event queue's descriptor stays ready without an event, so that the rank cannot sleep on it.  This happens
 * if the process has no free descriptor for a connection request. */
static bool is_stuck(struct fabric *fabric)
{
    enum { SHORT_MS = 20, ARMS_MAX = 200 };
    int64_t now = fabric->config.host->now_ns();
    if (now - fabric->msg.armed_ns > (int64_t)SHORT_MS * 1000000) {
        fabric->msg.armed_ns = now;
        fabric->msg.arms = 0;
    }
    return ++fabric->msg.arms > ARMS_MAX;
}

static int msg_arm(struct fabric *fabric, int *descriptors)
{
    struct fid *waited[2] = {&fabric->cq->fid, &fabric->msg.eq->fid};
    int n = 0;
    fabric->msg.check_events = true;
    errno = 0;
    if (fi_trywait(fabric->fabric, waited, 2) != 0) return 0;
    descriptors[n++] = fabric->cq_fd;
    if (fabric->msg.timer_fd >= 0) descriptors[n++] = fabric->msg.timer_fd; /* other threads' sends may start it */
    if (!is_stuck(fabric)) descriptors[n++] = fabric->msg.eq_fd;
    return n;
}

const struct fabric_kind msg_kind = {.find = msg_find,
                                     .open = msg_open,
                                     .close = msg_close,
                                     .read_entry = msg_read_entry,
                                     .connect = msg_connect,
                                     .end = msg_end,
                                     .is_busy = msg_is_busy,
                                     .send = msg_send,
                                     .post_writes = msg_post_writes,
                                     .expose = msg_expose,
                                     .conceal = msg_conceal,
                                     .progress = msg_progress,
                                     .arm = msg_arm};
