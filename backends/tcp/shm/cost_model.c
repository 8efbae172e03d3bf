#include "tcp/shm/cost_model.h"

#include <stdbool.h>

enum {
    TRY_EVERY = 64,      /* operations between trials of the slower path; a power of two */
    SMALLEST = 32 << 10, /* maximum bytes of the smallest size class */
    PS_MAX = 1 << 24     /* maximum estimate per byte: 60 KB/s */
};

static int class_of(size_t bytes)
{
    int c = 0;
    for (size_t most = SMALLEST; bytes > most && c < COST_CLASSES - 1; most *= 2) c++;
    return c;
}

/* True if the slower path should be tried.  More often at first, because the first measurement includes page faults. */
static bool should_try(uint8_t *turns)
{
    if (++*turns == 2 * TRY_EVERY) *turns = TRY_EVERY;
    return (*turns & (*turns - 1)) == 0;
}

int cost_choose(struct cost_model *cost, size_t bytes)
{
    int c = class_of(bytes);
    uint32_t one = cost->ps[COST_FIRST][c], other = cost->ps[COST_SECOND][c];
    if (one == 0) return COST_FIRST;
    if (other == 0) return COST_SECOND;
    bool tries = should_try(&cost->turns[c]);
    return (other < one) != tries ? COST_SECOND : COST_FIRST;
}

uint32_t cost_update(uint32_t known_ps, uint64_t bytes, uint64_t ns)
{
    uint64_t found = ns < UINT32_MAX ? ns * 1000 / bytes : PS_MAX, known = known_ps;
    if (found > PS_MAX) found = PS_MAX;
    if (found == 0) found = 1;
    if (known == 0 || found <= known) return (uint32_t)found;
    if (found > known * 2) found = known * 2;
    return (uint32_t)(known + (found - known + 7) / 8);
}

void cost_record(struct cost_model *cost, int way, size_t bytes, uint64_t ns)
{
    uint32_t *known = &cost->ps[way][class_of(bytes)];
    if (bytes > 0) *known = cost_update(*known, bytes, ns);
}
