/* Floats as float8_e4m3fn in blocks of 256, each with a scale: a power of two, as one byte.
 *
 * A vector is cut into equal parts of whole blocks, one per rank.  A part has its scales first and then its data, so
 * that it is one piece of memory to send.  A block that holds an infinity or a NaN becomes all NaN. */
#ifndef TRAIN_BLOCKS_H
#define TRAIN_BLOCKS_H

#include <tutti/tutti.h>

enum { BLOCKS_NUMEL = 256, BLOCKS_BYTES = BLOCKS_NUMEL + 1 };

/* The shape of a vector. */
struct blocks {
    int64_t numel;
    int64_t per_part; /* blocks of a part */
    int parts;
};

struct blocks blocks_of(int64_t numel, int parts);

/* Returns the bytes of one part. */
static inline int64_t blocks_part_bytes(struct blocks shape)
{
    return shape.per_part * BLOCKS_BYTES;
}

/* Encodes all elements of a float32 or float64 tensor.  Writes all bytes of all parts. */
void blocks_encode(struct blocks shape, tutti_tensor from, uint8_t *encoded);

/* Decodes the elements from begin on into a float32 or float64 tensor. */
void blocks_decode(struct blocks shape, const uint8_t *encoded, int64_t begin, tutti_tensor to);

/* Gets what encoding loses of n elements from `begin` of the part on. */
typedef void (*blocks_loss)(void *context, int64_t begin, const float *lost, int n);

/* Adds one part of all ranks' vectors, which follow each other in memory, and encodes the sum.  Calls loss, if it is
 * not NULL, for all elements of the part in order. */
void blocks_sum(struct blocks shape, const uint8_t *parts, uint8_t *sum, blocks_loss loss, void *context);

#endif
