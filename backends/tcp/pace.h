/* Which of two ways is the faster one.
 *
 * A message to a peer is pushed, which is copied into the ring by one core and out of it by another, or pulled, which
 * one core does alone, with the kernel's help.  On two cores that share a cache pushing takes half the time (512 KiB
 * 30 us for 63), on two that do not it takes twice as long (110): then every line crosses twice.  What others will read
 * is written with plain stores or past the caches (shm_put.c).
 *
 * A program cannot tell which cores it has, a virtual machine's change under way, and so what either way last took
 * decides.  A time can be too long for many reasons, and too short for none: a shorter one is believed at once, a
 * longer one slowly.
 */
#ifndef PACE_H
#define PACE_H

#include <stddef.h>
#include <stdint.h>

enum { PACE_ONE, PACE_OTHER }; /* the ways; who asks has names for them */

enum { PACE_CLASSES = 13 }; /* of sizes, each twice as large as the last: up to 32 KiB .. more than 64 MiB */

struct pace {
    uint32_t ps[2][PACE_CLASSES]; /* a byte; 0: not known */
    uint8_t turns[PACE_CLASSES];
};

/* The faster way for so many bytes; now and then the other one, for times change. */
int pace_choose(struct pace *pace, size_t bytes);
/* What a time per byte is believed to be that was believed to be known (0: nothing), once this was found. */
uint32_t pace_believe(uint32_t known_ps, uint64_t bytes, uint64_t ns);
/* So long it has taken. */
void pace_learn(struct pace *pace, int way, size_t bytes, uint64_t ns);

#endif
