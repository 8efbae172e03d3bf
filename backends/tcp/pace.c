#include "pace.h"

#include <stdbool.h>

enum { TRY_EVERY = 64, SMALLEST = 32 << 10, PS_MOST = 1 << 24 /* 60 KB/s */ };

static int class_of(size_t bytes)
{
    int c = 0;
    for (size_t most = SMALLEST; bytes > most && c < PACE_CLASSES - 1; most *= 2) c++;
    return c;
}

enum pace_way pace_choose(struct pace *pace, size_t bytes)
{
    int c = class_of(bytes);
    uint32_t push = pace->ps[PACE_PUSH][c], pull = pace->ps[PACE_PULL][c];
    if (push == 0) return PACE_PUSH;
    if (pull == 0) return PACE_PULL;
    bool other = ++pace->turns[c] % TRY_EVERY == 0;
    return (pull < push) != other ? PACE_PULL : PACE_PUSH;
}

uint32_t pace_believe(uint32_t known_ps, uint64_t bytes, uint64_t ns)
{
    uint64_t found = ns < UINT32_MAX ? ns * 1000 / bytes : PS_MOST, known = known_ps;
    if (found > PS_MOST) found = PS_MOST;
    if (found == 0) found = 1;
    if (known == 0 || found <= known) return (uint32_t)found;
    if (found > known * 2) found = known * 2;
    return (uint32_t)(known + (found - known + 7) / 8);
}

void pace_learn(struct pace *pace, enum pace_way way, size_t bytes, uint64_t ns)
{
    uint32_t *known = &pace->ps[way][class_of(bytes)];
    if (bytes > 0) *known = pace_believe(*known, bytes, ns);
}
