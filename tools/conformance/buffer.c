#include "conformance/buffer.h"

#include <stdlib.h>
#include <string.h>

enum { JUNK = 0x5a, CANARY = 0xc3 };

bool buffer_new(struct buffer *buffer, size_t bytes, size_t offset, tutti_group *group)
{
    size_t lead = CANARY_BYTES + offset, whole = (lead + bytes + CANARY_BYTES + 63) / 64 * 64;
    void *memory = NULL;
    if (group == NULL)
        memory = aligned_alloc(64, whole);
    else if (tutti_alloc(group, (int64_t)whole, &memory) != TUTTI_OK)
        memory = NULL;
    *buffer = (struct buffer){.memory = memory, .bytes = bytes, .lead = lead, .group = group};
    if (memory == NULL) return false;
    buffer->data = buffer->memory + lead;
    memset(buffer->memory, CANARY, lead);
    memset(buffer->data, JUNK, bytes);
    memset(buffer->data + bytes, CANARY, CANARY_BYTES);
    return true;
}

static bool all(const uint8_t *data, size_t bytes, uint8_t value)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != value) return false;
    return true;
}

bool buffer_intact(const struct buffer *buffer)
{
    return all(buffer->memory, buffer->lead, CANARY) &&
           all(buffer->memory + buffer->lead + buffer->bytes, CANARY_BYTES, CANARY);
}

bool buffer_is_junk(const void *data, size_t bytes)
{
    return all(data, bytes, JUNK);
}

void buffer_free(struct buffer *buffer)
{
    if (buffer->group == NULL)
        free(buffer->memory);
    else if (buffer->memory != NULL)
        tutti_free(buffer->group, buffer->memory);
    *buffer = (struct buffer){0};
}
