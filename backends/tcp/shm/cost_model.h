/* Cost model: decides which of two paths is faster.
 *
 * A message to a peer is either copied in by one core and copied out by another, or read by one core alone with the
 * kernel's help.  On cores that share a cache the first path is faster.  On others it is slower, since every line
 * crosses twice.  The choice between plain and non-temporal stores raises the same question (copy_in.c).
 * See docs/benchmarks/shared-memory.md.
 *
 * A program cannot know the topology, and a virtual machine's may change, so measurements decide.  A duration can be
 * too long for many reasons, but never too short.  A shorter one is adopted at once, a longer one gradually.
 */
#ifndef COST_MODEL_H
#define COST_MODEL_H

#include <stddef.h>
#include <stdint.h>

enum { COST_FIRST, COST_SECOND }; /* the two paths; the caller defines their meaning */

enum { COST_CLASSES = 13 }; /* size classes: up to 32 KiB, up to 64 KiB, .., more than 64 MiB */

struct cost_model {
    uint32_t ps[2][COST_CLASSES]; /* estimate per byte; 0: unknown */
    uint8_t turns[COST_CLASSES];  /* choices so far: see TRY_EVERY */
};

/* Returns the faster path for a size.  At intervals returns the slower one, because conditions change. */
int cost_choose(struct cost_model *cost, size_t bytes);
/* Returns the new per-byte estimate, given the old one (0 if none) and one measurement. */
uint32_t cost_update(uint32_t known_ps, uint64_t bytes, uint64_t ns);
/* Records one measurement of a path. */
void cost_record(struct cost_model *cost, int way, size_t bytes, uint64_t ns);

#endif
