/* Elements of a rank's tensor, which differ from rank to rank, and their sums over ranks. */
#ifndef VALUES_H
#define VALUES_H

#include <stdbool.h>
#include <stdint.h>

/* Returns element i of a rank. */
int32_t values_of_rank(int rank, int64_t i);

/* Returns the sum of element i over the first `size` ranks. */
int32_t values_sum(int size, int64_t i);

/* Sets x to n elements of a rank, beginning with element `from`. */
void values_fill(int32_t *x, int rank, int64_t from, int64_t n);

/* True if x holds n elements of a rank, or sums over the first `size` ranks. */
bool values_hold(const int32_t *x, int rank, int64_t from, int64_t n);
bool values_hold_sum(const int32_t *x, int size, int64_t from, int64_t n);

#endif
