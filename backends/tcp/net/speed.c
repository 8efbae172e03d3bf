#include "tcp/net/speed.h"

#include <stdbool.h>
#include <stdlib.h>

enum { BITS_PER_BYTE = 8, PER_MILLION = 1000000 };

int64_t speed_of(uint64_t bits_per_s)
{
    const uint64_t most = UINT64_C(100000) * 1000 * PER_MILLION; /* 100 Tbit/s */
    if (bits_per_s == 0 || bits_per_s > most) return 0;
    int64_t bytes = (int64_t)(bits_per_s / BITS_PER_BYTE / PER_MILLION);
    return bytes > 0 ? bytes : 1;
}

int64_t speed_parse(const char *text)
{
    char *end;
    long long mbits = strtoll(text, &end, 10);
    bool is_number = end != text && (*end == '\0' || *end == '\n');
    /* the kernel prints an unknown speed as -1, and in some versions as 2^32 - 1 */
    if (!is_number || mbits <= 0 || mbits >= UINT32_MAX) return 0;
    return speed_of((uint64_t)mbits * PER_MILLION);
}
