/* The ways to sum a bucket over the ranks. */
#ifndef TRAIN_REDUCER_SCHEME_H
#define TRAIN_REDUCER_SCHEME_H

#include "reducer_state.h"

/* Returns the scheme of the buckets that take this gradient. */
const struct scheme *scheme_of(const struct tutti_reducer *reducer, tutti_tensor gradient);

/* Returns the number of phases that start an operation. */
int scheme_phases(const struct tutti_reducer *reducer, const struct scheme *scheme);

/* True if gradients are collected in the bucket's own memory, in their own dtype. */
bool scheme_needs_bucket(const struct tutti_reducer *reducer, const struct scheme *scheme);

/* True if gradients are cast while they are copied, into the bucket's wire. */
bool scheme_casts(const struct scheme *scheme);

/* True if it sends float8 in blocks. */
bool scheme_has_blocks(const struct scheme *scheme);

/* Returns what a compressed bucket of numel elements sends and receives; numel 0 if it is not compressed. */
tutti_tensor scheme_wire(const struct tutti_reducer *reducer, const struct scheme *scheme, int64_t numel, void *memory);

/* Return bounds of the bytes of scheme_wire: a parameter's part of them, and what a bucket adds. */
int64_t scheme_wire_bytes_of_part(const struct scheme *scheme, int64_t numel);
int64_t scheme_wire_padding(const struct tutti_reducer *reducer);

/* Returns what the reduced elements are divided by when they are copied out; 1: nothing. */
double scheme_divisor(const struct tutti_reducer *reducer, const struct scheme *scheme);

#endif
