/* Memory with canaries on both sides. */
#ifndef CONFORMANCE_BUFFER_H
#define CONFORMANCE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum { CANARY_BYTES = 64 };

struct buffer {
    uint8_t *memory, *data; /* NULL if `bytes` is 0 and the caller has asked for NULL */
    size_t bytes, lead;
    tutti_group *group; /* the group whose tutti_alloc returned the memory, or NULL if malloc did */
};

/* Allocates memory at a multiple of 64 plus `offset` and fills it with junk.  Returns false if out of memory. */
bool buffer_new(struct buffer *buffer, size_t bytes, size_t offset, tutti_group *group);
bool buffer_intact(const struct buffer *buffer); /* True if the canaries are intact. */
bool buffer_is_junk(const void *data, size_t bytes);
void buffer_free(struct buffer *buffer);

#endif
