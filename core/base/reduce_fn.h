/* The type of a reduction loop: what reduce.h returns and each reduce_version holds. */
#ifndef BASE_REDUCE_FN_H
#define BASE_REDUCE_FN_H

#include <stdint.h>

/* Computes dst = a op b for n elements. */
typedef void (*reduce_fn)(void *dst, const void *a, const void *b, int64_t n);

#endif
