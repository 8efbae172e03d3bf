/* Messages, writes and completions. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric_impl.h"

enum { INJECT = 128, BATCH = 32, EVENTS_EVERY = 64 };

/* ---- receiving --------------------------------------------------------------------------------------------- */

static struct fabric_buffer *receive_at(struct fabric *fabric, int i)
{
    size_t stride = (sizeof(struct fabric_buffer) + FABRIC_MESSAGE + 63) / 64 * 64;
    return (void *)((uint8_t *)fabric->receives + (size_t)i * stride);
}

/* Always at once: a message without a buffer would keep the queue's descriptor ready and hold up the link. */
static int post(struct fabric *fabric, struct fabric_buffer *buffer)
{
    return (int)fi_recv(fabric->srx, buffer->data, FABRIC_MESSAGE, NULL, 0, buffer);
}

int fabric_post_receives(struct fabric *fabric)
{
    const tutti_host *host = fabric->config.host;
    size_t stride = (sizeof(struct fabric_buffer) + FABRIC_MESSAGE + 63) / 64 * 64;
    void *memory = NULL;
    if (posix_memalign(&memory, 64, stride * FABRIC_RECEIVES) != 0)
        return host->error(TUTTI_ERR_NO_MEMORY, "no memory for %d receive buffers", FABRIC_RECEIVES);
    fabric->receives = memory;
    for (int i = 0; i < FABRIC_RECEIVES; i++) {
        struct fabric_buffer *buffer = receive_at(fabric, i);
        *buffer = (struct fabric_buffer){.kind = FABRIC_RECEIVED};
        int status = post(fabric, buffer);
        if (status != 0)
            return host->error(TUTTI_ERR_BACKEND, "libfabric: fi_recv failed: %s", fabric_library.strerror(-status));
    }
    return TUTTI_OK;
}

/* ---- sending ----------------------------------------------------------------------------------------------- */

/* A copy comes from the spare ones of its size, and goes back there. */
static struct fabric_buffers *spare_of(struct fabric *fabric, size_t bytes)
{
    return &fabric->spare[bytes > FABRIC_SMALL];
}

static struct fabric_buffer *copy_of(struct fabric *fabric, const void *header, size_t header_bytes,
                                     const void *payload, size_t bytes)
{
    struct fabric_buffers *spare = spare_of(fabric, header_bytes + bytes);
    size_t capacity = header_bytes + bytes > FABRIC_SMALL ? FABRIC_MESSAGE : FABRIC_SMALL;
    struct fabric_buffer *buffer = STAILQ_FIRST(spare);
    if (buffer != NULL)
        STAILQ_REMOVE_HEAD(spare, entry);
    else
        buffer = malloc(sizeof *buffer + capacity);
    if (buffer == NULL) return NULL;
    buffer->kind = FABRIC_SENT;
    buffer->bytes = header_bytes + bytes;
    memcpy(buffer->data, header, header_bytes);
    if (bytes > 0) memcpy(buffer->data + header_bytes, payload, bytes);
    return buffer;
}

static void give_back(struct fabric *fabric, struct fabric_buffer *buffer)
{
    STAILQ_INSERT_HEAD(spare_of(fabric, buffer->bytes), buffer, entry);
}

static int out_of_memory(struct fabric *fabric)
{
    return fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory to send a message");
}

/* The provider reads a copy until the kernel has taken it.  A completion costs two system calls more, so only some
 * copies ask for one; as they leave in order, it frees those before it too. */
static int send_copy(struct fabric_link *link, struct fabric_buffer *buffer)
{
    buffer->link = link;
    struct iovec part = {buffer->data, buffer->bytes};
    struct fi_msg message = {.msg_iov = &part, .iov_count = 1, .context = buffer};
    bool signal = ++link->unsignalled >= FABRIC_SIGNAL_EVERY;
    ssize_t status = fi_sendmsg(link->ep, &message, signal ? FI_COMPLETION : 0);
    if (status != 0) {
        give_back(link->fabric, buffer);
        return link->fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "libfabric: fi_sendmsg failed: %s",
                                                fabric_library.strerror((int)-status));
    }
    STAILQ_INSERT_TAIL(&link->sent, buffer, entry);
    if (signal) link->unsignalled = 0;
    return TUTTI_OK;
}

static int send_now(struct fabric_link *link, const void *header, size_t header_bytes, const void *payload,
                    size_t bytes)
{
    struct fabric *fabric = link->fabric;
    if (header_bytes + bytes <= INJECT) {
        uint8_t small[INJECT];
        memcpy(small, header, header_bytes);
        if (bytes > 0) memcpy(small + header_bytes, payload, bytes);
        return fi_inject(link->ep, small, header_bytes + bytes, 0) == 0 ? TUTTI_OK : out_of_memory(fabric);
    }
    struct fabric_buffer *buffer = copy_of(fabric, header, header_bytes, payload, bytes);
    return buffer == NULL ? out_of_memory(fabric) : send_copy(link, buffer);
}

int fabric_send(struct fabric *fabric, int32_t rank, const void *header, size_t header_bytes, const void *payload,
                size_t bytes)
{
    struct fabric_link *link = &fabric->link[rank];
    if (link->state == FABRIC_UP) return send_now(link, header, header_bytes, payload, bytes);
    if (link->state == FABRIC_LOST) return TUTTI_OK;
    struct fabric_buffer *buffer = copy_of(fabric, header, header_bytes, payload, bytes);
    if (buffer == NULL) return out_of_memory(fabric);
    STAILQ_INSERT_TAIL(&link->waiting, buffer, entry);
    return TUTTI_OK;
}

static void post_writes(struct fabric_link *link);

void fabric_flush_waiting(struct fabric_link *link)
{
    struct fabric_buffer *buffer;
    while ((buffer = STAILQ_FIRST(&link->waiting)) != NULL && link->state == FABRIC_UP) {
        STAILQ_REMOVE_HEAD(&link->waiting, entry);
        int status = send_now(link, buffer->data, buffer->bytes, NULL, 0);
        give_back(link->fabric, buffer);
        if (status != TUTTI_OK) {
            fabric_drop(link->fabric, link->rank, "no memory to send what waited for the connection", true);
            return;
        }
    }
    post_writes(link);
}

bool fabric_unsend(struct fabric *fabric, int32_t rank,
                   bool (*is)(const void *message, size_t bytes, uint64_t argument), uint64_t argument)
{
    struct fabric_link *link = &fabric->link[rank];
    struct fabric_buffer *buffer;
    STAILQ_FOREACH(buffer, &link->waiting, entry)
    {
        if (!is(buffer->data, buffer->bytes, argument)) continue;
        STAILQ_REMOVE(&link->waiting, buffer, fabric_buffer, entry);
        give_back(fabric, buffer);
        return true;
    }
    return false;
}

void fabric_free_buffers(struct fabric_buffers *buffers)
{
    struct fabric_buffer *buffer;
    while ((buffer = STAILQ_FIRST(buffers)) != NULL) {
        STAILQ_REMOVE_HEAD(buffers, entry);
        free(buffer);
    }
}

void fabric_forget(struct fabric_link *link)
{
    fabric_free_buffers(&link->waiting);
    fabric_free_buffers(&link->sent);
}

static void copies_left(struct fabric_link *link, const struct fabric_buffer *last)
{
    struct fabric_buffer *buffer;
    while ((buffer = STAILQ_FIRST(&link->sent)) != NULL) {
        STAILQ_REMOVE_HEAD(&link->sent, entry);
        give_back(link->fabric, buffer);
        if (buffer == last) return;
    }
}

/* ---- writing ----------------------------------------------------------------------------------------------- */

int fabric_expose(struct fabric *fabric, void *data, size_t bytes, uint64_t key, struct fabric_memory *memory)
{
    struct fid_mr *region = NULL;
    if (bytes == 0) { /* a region of no bytes is none: see post_chunk */
        data = &fabric->nothing;
        bytes = 1;
    }
    int status = fi_mr_reg(fabric->domain, data, bytes, FI_REMOTE_WRITE, 0, key, 0, &region, NULL);
    if (status != 0)
        return fabric->config.host->error(TUTTI_ERR_BACKEND, "libfabric: fi_mr_reg of %zu bytes failed: %s", bytes,
                                          fabric_library.strerror(-status));
    memory->handle = region;
    return TUTTI_OK;
}

void fabric_conceal(struct fabric_memory *memory)
{
    if (memory->handle == NULL) return;
    fi_close(&((struct fid_mr *)memory->handle)->fid);
    memory->handle = NULL;
}

/* The last piece tells the peer.  Pieces keep the provider's queue short, so that small messages of other operations
 * need not wait for all of a large one. */
static bool post_chunk(struct fabric_link *link, struct fabric_chunk *chunk, struct fabric_write *write)
{
    size_t left = write->bytes - write->posted, bytes = left < FABRIC_CHUNK ? left : FABRIC_CHUNK;
    bool last = bytes == left;
    struct iovec from = {(uint8_t *)(uintptr_t)write->data + write->posted, bytes};
    struct fi_rma_iov to = {write->posted, bytes, write->key};
    if (write->bytes == 0) {
        from = (struct iovec){&link->fabric->nothing, 1};
        to.len = 1;
    }
    struct fi_msg_rma message = {
        .msg_iov = &from, .iov_count = 1, .rma_iov = &to, .rma_iov_count = 1, .context = chunk, .data = write->key};
    if (fi_writemsg(link->ep, &message, FI_COMPLETION | (last ? FI_REMOTE_CQ_DATA : 0)) != 0) return false;
    chunk->busy = true;
    chunk->write = write;
    chunk->bytes = bytes;
    write->posted += bytes;
    return true;
}

static bool all_posted(const struct fabric_write *write)
{
    return write->posted == write->bytes && write->posted > 0;
}

static void post_writes(struct fabric_link *link)
{
    for (int i = 0; i < FABRIC_CHUNKS && link->first_write != NULL && link->state == FABRIC_UP; i++) {
        struct fabric_write *write = link->first_write;
        if (link->chunk[i].busy || !post_chunk(link, &link->chunk[i], write)) continue;
        if (!all_posted(write) && write->bytes > 0) continue;
        link->first_write = write->next;
        if (link->first_write == NULL) link->last_write = NULL;
    }
}

void fabric_write(struct fabric *fabric, int32_t rank, struct fabric_write *write)
{
    struct fabric_link *link = &fabric->link[rank];
    write->posted = write->landed = 0;
    write->next = NULL;
    if (link->state == FABRIC_LOST) return;
    if (link->last_write != NULL)
        link->last_write->next = write;
    else
        link->first_write = write;
    link->last_write = write;
    post_writes(link);
}

static bool unqueue(struct fabric_link *link, struct fabric_write *write)
{
    struct fabric_write **at = &link->first_write, *before = NULL;
    while (*at != NULL && *at != write) {
        before = *at;
        at = &(*at)->next;
    }
    if (*at == NULL) return false;
    *at = write->next;
    if (link->last_write == write) link->last_write = before;
    return true;
}

bool fabric_unwrite(struct fabric *fabric, int32_t rank, struct fabric_write *write)
{
    return write->posted == 0 && unqueue(&fabric->link[rank], write);
}

bool fabric_cut(struct fabric *fabric, int32_t rank, struct fabric_write *write)
{
    if (write->posted == 0 || !unqueue(&fabric->link[rank], write)) return false;
    write->bytes = write->posted;
    return true;
}

static void chunk_left(struct fabric_chunk *chunk)
{
    struct fabric_link *link = chunk->link;
    struct fabric_write *write = chunk->write;
    size_t bytes = chunk->bytes;
    chunk->busy = false;
    chunk->write = NULL;
    post_writes(link); /* keep the wire busy before telling anyone */
    if (write == NULL) return;
    write->landed += bytes;
    if (write->landed >= write->bytes) link->fabric->config.events->write_done(link->fabric->config.user, write);
}

/* ---- completions ------------------------------------------------------------------------------------------- */

static void handle_completion(struct fabric *fabric, const struct fi_cq_data_entry *entry)
{
    const struct fabric_events *events = fabric->config.events;
    if (entry->flags & FI_REMOTE_WRITE) {
        events->written(fabric->config.user, entry->data);
        return;
    }
    uint8_t *context = entry->op_context;
    if (context == NULL) return;
    if (*context == FABRIC_RECEIVED) {
        struct fabric_buffer *buffer = (void *)context;
        events->message(fabric->config.user, buffer->data, entry->len);
        post(fabric, buffer);
    } else if (*context == FABRIC_SENT) {
        struct fabric_buffer *buffer = (void *)context;
        copies_left(buffer->link, buffer);
    } else {
        chunk_left((void *)context);
    }
}

/* Failed operations belong to a link that is about to be lost, which frees what they used; a receive that was cut
 * short is posted again. */
static void handle_error(struct fabric *fabric)
{
    struct fi_cq_err_entry error = {0};
    if (fi_cq_readerr(fabric->cq, &error, 0) < 0 || error.op_context == NULL || fabric->closing) return;
    uint8_t *context = error.op_context;
    if (*context == FABRIC_RECEIVED) {
        post(fabric, (void *)context);
    } else if (*context == FABRIC_CHUNK_WRITTEN) {
        struct fabric_chunk *chunk = (void *)context;
        chunk->busy = false;
    }
}

int fabric_drain(struct fabric *fabric)
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

bool fabric_is_up(const struct fabric *fabric, int32_t rank)
{
    return fabric->link[rank].state == FABRIC_UP;
}

const char *fabric_lost(const struct fabric *fabric, int32_t rank)
{
    return fabric->link[rank].state == FABRIC_LOST ? fabric->link[rank].why : NULL;
}

bool fabric_is_flushed(const struct fabric *fabric, int32_t rank)
{
    const struct fabric_link *link = &fabric->link[rank];
    for (int i = 0; i < FABRIC_CHUNKS; i++)
        if (link->chunk[i].busy) return false;
    if (link->state == FABRIC_LOST || link->state == FABRIC_IDLE) return true;
    return STAILQ_EMPTY(&link->waiting) && link->first_write == NULL;
}

int fabric_progress(struct fabric *fabric)
{
    int moved = fabric_drain(fabric);
    if (fabric->eq_due || fabric->connecting > 0 || ++fabric->polls % EVENTS_EVERY == 0) {
        fabric->eq_due = false; /* before: what comes now may ask again */
        moved += fabric_handle_events(fabric);
        if (fabric->connecting > 0) fabric_check_deadlines(fabric);
        fabric_end_silent(fabric);
    }
    if (moved > 0) fabric->arms = 0;
    return moved;
}

/* The process may have no descriptor left for a connection that asks: then the events' descriptor stays ready, and a
 * sleep on it would be none. */
static bool is_stuck(struct fabric *fabric)
{
    enum { SHORT_MS = 20, ARMS_MOST = 200 };
    int64_t now = fabric->config.host->now_ns();
    if (now - fabric->armed_ns > (int64_t)SHORT_MS * 1000000) {
        fabric->armed_ns = now;
        fabric->arms = 0;
    }
    return ++fabric->arms > ARMS_MOST;
}

int fabric_arm(struct fabric *fabric, int *descriptors)
{
    struct fid *waited[2] = {&fabric->cq->fid, &fabric->eq->fid};
    fabric->eq_due = true;
    errno = 0;
    if (fi_trywait(fabric->fabric, waited, 2) != 0) return 0;
    descriptors[0] = fabric->cq_fd;
    descriptors[1] = fabric->eq_fd;
    return is_stuck(fabric) ? 1 : 2;
}
