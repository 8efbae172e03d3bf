/* Copies with non-temporal stores.  These do not read the target lines first, and evict nothing from the caches.  They
 * pay if the data are so large that their beginning would be evicted before the end is written, or if another core has
 * the target lines, which a usual store first takes back. */
#include <string.h>

#include "tcp/shm/shm.h"

#if defined(__SSE2__)
#include <emmintrin.h>

enum { LINE = 64 };

void shm_copy_non_temporal(void *to, const void *from, size_t bytes)
{
    char *d = to;
    const char *s = from;
    size_t head = (size_t)(-(uintptr_t)d % LINE);
    if (bytes < head + LINE) {
        tutti_copy(d, s, bytes);
        return;
    }
    memcpy(d, s, head);
    d += head, s += head, bytes -= head;
    for (; bytes >= LINE;
         d += LINE, s += LINE, bytes -= LINE) { /* whole lines: the processor would read partial ones first */
        const __m128i *in = (const __m128i *)(const void *)s;
        __m128i *out = (__m128i *)(void *)d;
        __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
        __m128i c = _mm_loadu_si128(in + 2), e = _mm_loadu_si128(in + 3);
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, e);
    }
    _mm_sfence(); /* orders the weakly ordered non-temporal stores before the store that publishes the data */
    memcpy(d, s, bytes);
}
#else
void shm_copy_non_temporal(void *to, const void *from, size_t bytes)
{
    tutti_copy(to, from, bytes);
}
#endif
