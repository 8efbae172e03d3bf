#include "gpu/device_tensors.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers of any dtype ---------------------------------------------------------------------------------- */

static void number_put(tutti_dtype dtype, void *at, int64_t i, double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (dtype) {
    case TUTTI_BOOL:
    case TUTTI_UINT8:
        ((uint8_t *)at)[i] = (uint8_t)value;
        break;
    case TUTTI_INT8:
        ((int8_t *)at)[i] = (int8_t)value;
        break;
    case TUTTI_INT16:
        ((int16_t *)at)[i] = (int16_t)value;
        break;
    case TUTTI_INT32:
    case TUTTI_UINT32:
        ((int32_t *)at)[i] = (int32_t)value;
        break;
    case TUTTI_INT64:
    case TUTTI_UINT64:
        ((int64_t *)at)[i] = (int64_t)value;
        break;
    case TUTTI_FLOAT16: /* small whole and half numbers are exact */
        ((uint16_t *)at)[i] =
            value == 0 ? 0
                       : (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 112) << 10) | (bits >> 13 & 0x3ff));
        break;
    case TUTTI_BFLOAT16:
        ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
        break;
    case TUTTI_FLOAT32:
        ((float *)at)[i] = single;
        break;
    case TUTTI_FLOAT64:
        ((double *)at)[i] = value;
        break;
    case TUTTI_COMPLEX64:
        ((float *)at)[2 * i] = single;
        ((float *)at)[2 * i + 1] = -single;
        break;
    case TUTTI_COMPLEX128:
        ((double *)at)[2 * i] = value;
        ((double *)at)[2 * i + 1] = -value;
        break;
    default:
        break;
    }
}

static bool numbers_are(tutti_dtype dtype, const void *at, int64_t n, double (*value)(int64_t i, const int *what),
                        const int *what)
{
    size_t bytes = (size_t)tutti_dtype_bytes(dtype);
    for (int64_t i = 0; i < n; i++) {
        char one[16] = {0};
        number_put(dtype, one, 0, value(i, what));
        if (memcmp(one, (const char *)at + (size_t)i * bytes, bytes) == 0) continue;
        fprintf(stderr, "element %lld of dtype 0x%x: not %g\n", (long long)i, (unsigned)dtype, value(i, what));
        return false;
    }
    return true;
}

/* ---- tensors on the device --------------------------------------------------------------------------------- */

tutti_tensor on_device(tutti_group *group, int64_t numel, tutti_dtype dtype)
{
    tutti_tensor x = {NULL, numel, dtype, tutti_get_device(group)};
    TUTTI_CHECK(tutti_alloc(group, numel * tutti_dtype_bytes(dtype), &x.data));
    return x;
}

tutti_tensor part(tutti_tensor x, int64_t from, int64_t numel)
{
    return (tutti_tensor){(char *)x.data + from * tutti_dtype_bytes(x.dtype), numel, x.dtype, x.device};
}

static size_t bytes_of(tutti_tensor x)
{
    return (size_t)(x.numel * tutti_dtype_bytes(x.dtype));
}

void *to_host(tutti_tensor x)
{
    void *host = malloc(bytes_of(x) + 1);
    if (x.numel > 0 && cu.copy((cu_memory)(uintptr_t)host, (cu_memory)(uintptr_t)x.data, bytes_of(x)) != 0) abort();
    return host;
}

void fill(tutti_tensor x, double (*value)(int64_t i, const int *what), const int *what)
{
    void *host = malloc(bytes_of(x) + 16);
    for (int64_t i = 0; i < x.numel; i++) number_put(x.dtype, host, i, value(i, what));
    if (x.numel > 0 && cu.copy((cu_memory)(uintptr_t)x.data, (cu_memory)(uintptr_t)host, bytes_of(x)) != 0) abort();
    /* The copy has read the host's memory when it returns, but the cases' streams do not wait for the rest of it. */
    cu.stream_wait(NULL);
    free(host);
}

bool holds(tutti_tensor x, double (*value)(int64_t i, const int *what), const int *what)
{
    void *host = to_host(x);
    bool same = numbers_are(x.dtype, host, x.numel, value, what);
    free(host);
    return same;
}

double of_rank(int64_t i, const int *what)
{
    return (double)((i + what[1]) % 5 + what[0] + 1);
}

double reduced(int64_t i, const int *what)
{
    double all = 0;
    for (int r = 0; r < what[3]; r++) {
        double x = of_rank(i, (int[]){r, what[1]});
        switch (what[2]) {
        case TUTTI_PRODUCT:
            all = r == 0 ? x : all * x;
            break;
        case TUTTI_MIN:
            all = r == 0 || x < all ? x : all;
            break;
        case TUTTI_MAX:
            all = r == 0 || x > all ? x : all;
            break;
        case TUTTI_PREMUL_SUM:
            all += x / 2;
            break;
        default:
            all += x;
        }
    }
    return what[2] == TUTTI_AVG ? all / what[3] : all;
}

double reduced_whole(int64_t i, const int *what)
{
    return (double)(int64_t)reduced(i, what);
}

cu_stream new_stream(void)
{
    cu_stream stream = NULL;
    if (cu.stream_new(&stream, CU_STREAM_NONBLOCKING) != 0) abort();
    return stream;
}

void wait_stream(cu_stream stream)
{
    int result = cu.stream_wait(stream);
    if (result != 0) fprintf(stderr, "cuStreamSynchronize: %d\n", result);
}

void drop(tutti_group *group, tutti_tensor x)
{
    TUTTI_CHECK(tutti_free(group, x.data));
}
