/* A Feistel network permutes the smallest power of four that is at least n.  Results of n or more are permuted again
 * until one is below n, which takes fewer than four rounds on average ("cycle walking": Black and Rogaway, Ciphers with
 * Arbitrary Finite Domains, 2002). */
#include "permutation.h"

enum { ROUNDS = 6 }; /* four give a pseudo-random permutation (Luby and Rackoff); more help the small halves here */

/* The finalizer of splitmix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t permutation_key(uint64_t seed, uint64_t epoch)
{
    return mix(mix(seed + 0x9e3779b97f4a7c15u) ^ (epoch + 0x632be59bd9b4e019u));
}

/* Returns the bits of a half of the network: 4^bits >= n, at most 31. */
static int half_bits(uint64_t n)
{
    int bits = 1;
    while (bits < 31 && (uint64_t)1 << 2 * bits < n) bits++;
    return bits;
}

static uint64_t permute(uint64_t key, int bits, uint64_t x)
{
    uint64_t mask = ((uint64_t)1 << bits) - 1, left = x >> bits, right = x & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t mixed = left ^ (mix(key + round * 0x9e3779b97f4a7c15u + (right << 1)) & mask);
        left = right;
        right = mixed;
    }
    return left << bits | right;
}

int64_t permutation_at(uint64_t key, int64_t n, int64_t i)
{
    int bits = half_bits((uint64_t)n);
    uint64_t x = (uint64_t)i;
    do x = permute(key, bits, x);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}
