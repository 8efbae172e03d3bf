/* The rate of tutti_cast between all pairs of floating dtypes, against memcpy of as many bytes.
 *
 *     build/tests/bench_cast [KiB of the larger tensor]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cast.h"
#include "base/dtype.h"

static const tutti_dtype dtypes[] = {TUTTI_FLOAT8_E4M3FN, TUTTI_FLOAT8_E5M2, TUTTI_FLOAT16,
                                     TUTTI_BFLOAT16,      TUTTI_FLOAT32,     TUTTI_FLOAT64};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

/* Returns this thread's processor time, which other programs on the machine hardly change. */
static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Fills with numbers between -2 and 2.  Many are small, as gradients are. */
static void fill(char *in, tutti_dtype dtype, int64_t n)
{
    static float values[4096];
    for (int i = 0; i < 4096; i++) values[i] = (float)((i * 2654435761u >> 8) % 4001 - 2000.0) / (float)(1000 << i % 8);
    for (int64_t i = 0; i < n; i += 4096) {
        int64_t now = n - i < 4096 ? n - i : 4096;
        cast_elements(dtype, in + i * tutti_dtype_bytes(dtype), TUTTI_FLOAT32, values, now);
    }
}

/* Returns the seconds of one cast, or with no dtypes of a copy of n bytes. */
static double once(tutti_dtype to, void *out, tutti_dtype from, const void *in, int64_t n)
{
    double start = now_s();
    if (to)
        cast_elements(to, out, from, in, n);
    else
        memcpy(out, in, (size_t)n);
    return now_s() - start;
}

/* Measures alternately, and takes the shortest time of each: others may use the machine. */
static void measure(tutti_dtype to, void *out, tutti_dtype from, const void *in, int64_t n)
{
    double cast = 1e9, copy = 1e9, bytes = (double)(n * (tutti_dtype_bytes(from) + tutti_dtype_bytes(to)));
    for (double end = now_s() + 0.4; now_s() < end;) {
        double casting = once(to, out, from, in, n), copying = once(0, out, 0, in, (int64_t)(bytes / 2));
        if (casting < cast) cast = casting;
        if (copying < copy) copy = copying;
    }
    printf("%-15s %-15s %8.2f %8.2f %5.2f\n", dtype_name(from), dtype_name(to), bytes * 1e-9 / cast,
           bytes * 1e-9 / copy, copy / cast);
}

int main(int argc, char **argv)
{
    int64_t bytes = (argc > 1 ? atoll(argv[1]) : 65536) << 10;
    if (bytes <= 0) return 2;
    char *in = malloc((size_t)bytes), *out = malloc((size_t)bytes);
    if (!in || !out) return 1;
    memset(out, 1, (size_t)bytes);

    printf("%-15s %-15s %8s %8s %s\n", "from", "to", "GB/s", "memcpy", "ratio");
    for (int f = 0; f < DTYPES; f++)
        for (int t = 0; t < DTYPES; t++) {
            int64_t a = tutti_dtype_bytes(dtypes[f]), b = tutti_dtype_bytes(dtypes[t]), n = bytes / (a > b ? a : b);
            if (f == t) continue;
            fill(in, dtypes[f], n);
            measure(dtypes[t], out, dtypes[f], in, n);
        }
    free(in);
    free(out);
    return 0;
}
