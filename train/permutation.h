/* A pseudo-random permutation of 0 .. n - 1 that is computed element by element. */
#ifndef TRAIN_PERMUTATION_H
#define TRAIN_PERMUTATION_H

#include <stdint.h>

/* Returns the element at place i of the permutation that the key selects, 0 <= i < n <= 2^62. */
int64_t permutation_at(uint64_t key, int64_t n, int64_t i);

/* Returns a key that depends on all bits of both numbers. */
uint64_t permutation_key(uint64_t seed, uint64_t epoch);

#endif
