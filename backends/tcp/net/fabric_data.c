/* The part of messages and writes that both kinds of endpoint share, and the transport's table. */
#include <stdlib.h>
#include <string.h>

#include "tcp/net/rdm.h"

/* ---- links --------------------------------------------------------------------------------------------------- */

static bool reaches(const struct transport *transport, int32_t rank)
{
    return rank < fabric_of(transport)->config.world_size;
}

static int connect_rank(struct transport *transport, int32_t rank)
{
    return fabric_connect(fabric_of(transport), rank);
}

static bool is_up(const struct transport *transport, int32_t rank)
{
    return fabric_is_up(fabric_of(transport), rank);
}

static const char *why_lost(const struct transport *transport, int32_t rank)
{
    return fabric_lost(fabric_of(transport), rank);
}

static bool is_flushed(const struct transport *transport, int32_t rank)
{
    return fabric_is_flushed(fabric_of(transport), rank);
}

static void drop(struct transport *transport, int32_t rank, const char *why, bool notify)
{
    fabric_drop(fabric_of(transport), rank, why, notify);
}

/* ---- messages ------------------------------------------------------------------------------------------------ */

int fabric_send_later(struct fabric *fabric, int32_t rank, const uint8_t header[WIRE_HEADER], const void *payload,
                      size_t bytes)
{
    struct fabric_link *link = fabric_make_link(fabric, rank);
    if (link == NULL) return TUTTI_ERR_NO_MEMORY;
    return link->state != FABRIC_LOST ? fabric_queue(link, header, WIRE_HEADER, payload, bytes) : TUTTI_OK;
}

static bool unsend(struct transport *transport, int32_t rank, uint8_t kind, uint64_t id)
{
    struct fabric *fabric = fabric_of(transport);
    struct fabric_link *link = fabric->link[rank];
    struct fabric_buffer *buffer;
    if (link == NULL) return false;
    STAILQ_FOREACH(buffer, &link->waiting, entry)
    {
        struct transport_header header;
        if (!wire_parse(buffer->data, buffer->bytes, &header) || header.kind != kind || header.id != id) continue;
        STAILQ_REMOVE(&link->waiting, buffer, fabric_buffer, entry);
        fabric_release(fabric, buffer);
        return true;
    }
    return false;
}

void fabric_deliver(struct fabric *fabric, const void *message, size_t bytes)
{
    struct transport_header header;
    bool is_whole = wire_parse(message, bytes, &header) && header.source != (uint32_t)fabric->config.rank;
    if (is_whole && header.kind == FABRIC_PROBE) {
        fabric_handle_probe(fabric, &header);
        return;
    }
    if (is_whole && fabric->config.events->message(fabric->config.user, &fabric->transport, &header,
                                                   (const uint8_t *)message + WIRE_HEADER, bytes - WIRE_HEADER))
        return;
    TUTTI_LOG_AS(fabric->config.host, "net", 1, "tcp: ignored a malformed message of %zu bytes", bytes);
}

/* Returns WRITE: every message that does not go eagerly is written to the receiver's memory. */
static enum transport_path choose(struct transport *transport, int32_t rank, const tutti_request *request,
                                  bool may_eager, bool blocked, const tutti_path_row *row)
{
    (void)transport, (void)rank, (void)request, (void)may_eager, (void)blocked, (void)row;
    return TRANSPORT_WRITE;
}

/* ---- writes -------------------------------------------------------------------------------------------------- */

static void free_staging(struct transport_memory *memory)
{
    free(memory->staging);
    memory->staging = NULL;
}

static int expose(struct transport *transport, int32_t rank, struct transport_memory *memory)
{
    struct fabric *fabric = fabric_of(transport);
    tutti_request *request = memory->request;
    bool reduces = request->addend != NULL;
    if (reduces && (memory->staging = malloc(request->bytes)) == NULL)
        return fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for a message of %zu bytes from rank %d",
                                          request->bytes, rank);
    memory->rank = rank;
    void *data = reduces ? memory->staging : request->data;
    int status = fabric->kind->expose(fabric, data, request->bytes, memory);
    if (status == TUTTI_OK)
        memory->transport = transport;
    else
        free_staging(memory);
    return status;
}

static void conceal(struct transport_memory *memory)
{
    fabric_of(memory->transport)->kind->conceal(memory);
    memory->transport = NULL;
    free_staging(memory);
}

static void write_memory(struct transport *transport, int32_t rank, struct transport_write *write)
{
    struct fabric *fabric = fabric_of(transport);
    struct fabric_link *link = fabric->link[rank]; /* not NULL while the peer is up: the key came over this link */
    write->posted = write->landed = 0;
    write->rails = 0;
    write->offer = NULL;
    if (link == NULL || link->state == FABRIC_LOST) return;
    write->queued = true;
    TAILQ_INSERT_TAIL(&link->writes, write, entry);
    fabric->kind->post_writes(link);
}

void fabric_unqueue(struct fabric_link *link, struct transport_write *write)
{
    TAILQ_REMOVE(&link->writes, write, entry);
    write->queued = false;
}

static bool unwrite(struct transport *transport, int32_t rank, struct transport_write *write)
{
    if (!write->queued || write->posted > 0) return false;
    fabric_unqueue(fabric_of(transport)->link[rank], write);
    return true;
}

/* If all posted pieces have left already, the write is queued for write_done in the next progress call. */
static bool cut(struct transport *transport, int32_t rank, struct transport_write *write)
{
    struct fabric *fabric = fabric_of(transport);
    struct fabric_link *link = fabric->link[rank];
    if (!write->queued || write->posted == 0) return false;
    if (write->offer != NULL) {
        rdm_cut_offer(write->offer);
        return true;
    }
    fabric_unqueue(link, write);
    write->bytes = write->posted;
    if (write->landed == write->bytes) {
        TAILQ_INSERT_TAIL(&link->cut, write, entry);
        fabric->cuts++;
    }
    return true;
}

static void finish_cut(struct fabric *fabric)
{
    struct fabric_link *link;
    STAILQ_FOREACH(link, &fabric->all_links, entry)
    {
        struct transport_write *write;
        while ((write = TAILQ_FIRST(&link->cut)) != NULL) {
            TAILQ_REMOVE(&link->cut, write, entry);
            fabric->cuts--;
            fabric->config.events->write_done(fabric->config.user, write);
        }
    }
}

/* ---- the table ----------------------------------------------------------------------------------------------- */

static int progress(struct transport *transport)
{
    struct fabric *fabric = fabric_of(transport);
    int moved = fabric->kind->progress(fabric) + fabric->cuts;
    if (fabric->cuts > 0) finish_cut(fabric);
    return moved;
}

static int arm(struct transport *transport, int *descriptors)
{
    struct fabric *fabric = fabric_of(transport);
    return fabric->cuts > 0 ? 0 : fabric->kind->arm(fabric, descriptors);
}

static int describe(const struct transport *transport, char *text, size_t capacity)
{
    return fabric_describe(fabric_of(transport), text, capacity);
}

static void close_fabric(struct transport *transport)
{
    fabric_close(fabric_of(transport));
}

/* All entries except send, which differs by kind of endpoint. */
static const struct transport_ops shared_ops = {.reaches = reaches,
                                                .connect = connect_rank,
                                                .is_up = is_up,
                                                .lost = why_lost,
                                                .is_flushed = is_flushed,
                                                .drop = drop,
                                                .unsend = unsend,
                                                .expose = expose,
                                                .conceal = conceal,
                                                .write = write_memory,
                                                .unwrite = unwrite,
                                                .cut = cut,
                                                .choose = choose,
                                                .progress = progress,
                                                .arm = arm,
                                                .describe = describe,
                                                .close = close_fabric};

struct transport *fabric_transport(struct fabric *fabric)
{
    tutti_counters *counters = fabric->config.counters;
    fabric->ops = shared_ops;
    fabric->ops.send = fabric->kind->send;
    fabric->transport = (struct transport){.ops = &fabric->ops,
                                           .eager_certain = TRANSPORT_PAYLOAD_MAX,
                                           .eager_max = TRANSPORT_PAYLOAD_MAX,
                                           .early_cts = true,
                                           .traffic = counters != NULL ? &counters->wire : NULL};
    return &fabric->transport;
}
