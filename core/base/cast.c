#include "base/cast.h"
#include "base/reduce_select.h"
#include <assert.h>
#include <string.h>

enum { BLOCK = 512 }; /* elements; two blocks of the largest element fit the first-level cache and a small stack */

/* Converts by way of float32, unless either dtype is that or there is a direct way.  `first` may be all: then `second`
 * is NULL. */
struct route {
    cast_fn first, second;
};

static cast_fn to_float32(const struct reduce_version *version, tutti_dtype from)
{
    return from == TUTTI_FLOAT64 ? version->shorten : version->widen[dtype_index(from)];
}

static cast_fn from_float32(const struct reduce_version *version, tutti_dtype to)
{
    return to == TUTTI_FLOAT64 ? version->float64_of_float32 : version->narrow[dtype_index(to)];
}

static struct route find_route(const struct reduce_version *version, tutti_dtype to, tutti_dtype from)
{
    cast_fn direct = version->direct[dtype_index(to)][dtype_index(from)];

    if (direct) return (struct route){direct, NULL};
    if (from == TUTTI_FLOAT32) return (struct route){from_float32(version, to), NULL};
    if (to != TUTTI_FLOAT32) return (struct route){to_float32(version, from), from_float32(version, to)};
    return (struct route){from == TUTTI_FLOAT64 ? version->float32_of_float64 : to_float32(version, from), NULL};
}

static void run_route(const struct route *route, void *dst, const void *src, int64_t n)
{
    float wide[BLOCK];

    assert(n <= BLOCK);
    if (!route->second) {
        route->first(dst, src, n);
        return;
    }
    route->first(wide, src, n);
    route->second(dst, wide, n);
}

/* Converts one block of at most BLOCK elements in place: all is read before any is written. */
static void run_in_place(const struct route *route, void *dst, const void *src, int64_t n, int64_t width)
{
    double result[BLOCK]; /* of any dtype */

    run_route(route, result, src, n);
    memcpy(dst, result, (size_t)(n * width));
}

/* Starts to load the next block, so that its loads overlap with this block's arithmetic.  It may be past the end. */
static void prefetch(const char *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i);
}

bool cast_possible(tutti_dtype dtype)
{
    const struct reduce_version *version = reduce_version_best();
    int index = dtype_index(dtype);

    return dtype == TUTTI_FLOAT32 || dtype == TUTTI_FLOAT64 || (index >= 0 && version->widen[index]);
}

void cast_by_version(const struct reduce_version *version, tutti_dtype to, void *dst, tutti_dtype from, const void *src,
                     int64_t n)
{
    int64_t width = tutti_dtype_bytes(to), step = tutti_dtype_bytes(from);

    if (to == from) {
        memmove(dst, src, (size_t)(n * width));
        return;
    }
    struct route route = find_route(version, to, from);
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t now = n - i < BLOCK ? n - i : BLOCK;
        void *d = (char *)dst + i * width;
        const void *s = (const char *)src + i * step;

        prefetch((const char *)s + now * step, now * step);
        if (dst == src)
            run_in_place(&route, d, s, now, width);
        else
            run_route(&route, d, s, now);
    }
}

void cast_elements(tutti_dtype to, void *dst, tutti_dtype from, const void *src, int64_t n)
{
    cast_by_version(reduce_version_best(), to, dst, from, src, n);
}
