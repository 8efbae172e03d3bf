/* Copies of messages.  Free buffers of two sizes are kept on spare lists. */
#include <stdlib.h>
#include <string.h>

#include "tcp/net/fabric_impl.h"

static struct fabric_buffers *spare_of(struct fabric *fabric, size_t bytes)
{
    return &fabric->spare[bytes > FABRIC_SMALL];
}

struct fabric_buffer *fabric_copy(struct fabric *fabric, const void *header, size_t header_bytes, const void *payload,
                                  size_t bytes)
{
    struct fabric_buffers *spare = spare_of(fabric, header_bytes + bytes);
    size_t capacity = header_bytes + bytes > FABRIC_SMALL ? FABRIC_COPY : FABRIC_SMALL;
    struct fabric_buffer *buffer = STAILQ_FIRST(spare);
    if (buffer != NULL)
        STAILQ_REMOVE_HEAD(spare, entry);
    else
        buffer = malloc(sizeof *buffer + capacity);
    if (buffer == NULL) return NULL;
    buffer->kind = FABRIC_SENT;
    buffer->bytes = header_bytes + bytes;
    memcpy(buffer->data, header, header_bytes);
    tutti_copy(buffer->data + header_bytes, payload, bytes);
    return buffer;
}

void fabric_release(struct fabric *fabric, struct fabric_buffer *buffer)
{
    STAILQ_INSERT_HEAD(spare_of(fabric, buffer->bytes), buffer, entry);
}

int fabric_out_of_memory(struct fabric *fabric)
{
    return fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for a copy of a message to send");
}

int fabric_queue(struct fabric_link *link, const void *header, size_t header_bytes, const void *payload, size_t bytes)
{
    struct fabric_buffer *buffer = fabric_copy(link->fabric, header, header_bytes, payload, bytes);
    if (buffer == NULL) return fabric_out_of_memory(link->fabric);
    STAILQ_INSERT_TAIL(&link->waiting, buffer, entry);
    return TUTTI_OK;
}

void fabric_free_buffers(struct fabric_buffers *buffers)
{
    struct fabric_buffer *buffer;
    while ((buffer = STAILQ_FIRST(buffers)) != NULL) {
        STAILQ_REMOVE_HEAD(buffers, entry);
        free(buffer);
    }
}
