/* Memory with canaries on both sides. */
#ifndef CONFORMANCE_BUFFER_H
#define CONFORMANCE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/tutti.h>

enum { CANARY_BYTES = 64 };

struct buffer {
    uint8_t *memory, *data; /* data is NULL where bytes is 0 and the caller asked for that */
    size_t bytes, lead;
    tutti_group *group; /* whose tutti_alloc gave it; NULL: it is the program's own */
};

/* bytes at an address that is offset behind a multiple of 64, filled with junk; false when out of memory. */
bool buffer_new(struct buffer *buffer, size_t bytes, size_t offset, tutti_group *group);
bool buffer_intact(const struct buffer *buffer); /* the canaries */
bool buffer_is_junk(const void *data, size_t bytes);
void buffer_free(struct buffer *buffer);

#endif
