/* FAKE NCCL's arithmetic. */
#include <string.h>

#include "fake_nccl.h"

size_t fake_bytes(ncclDataType_t type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return bytes[type];
}

static float from_bfloat16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static uint16_t to_bfloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define SAME(x) (x)
#define EACH(T, WIDE, LOAD, STORE)                                                                                     \
    do {                                                                                                               \
        T *p = a;                                                                                                      \
        const T *q = b;                                                                                                \
        for (uint64_t i = 0; i < n; i++) {                                                                             \
            WIDE x = LOAD(p[i]), y = LOAD(q[i]);                                                                       \
            p[i] = (T)STORE((WIDE)(op == ncclProd  ? x * y                                                             \
                                   : op == ncclMax ? (x > y ? x : y)                                                   \
                                   : op == ncclMin ? (x < y ? x : y)                                                   \
                                                   : x + y));                                                          \
        }                                                                                                              \
    } while (0)

void fake_reduce(ncclDataType_t type, ncclRedOp_t op, void *a, const void *b, uint64_t n)
{
    switch ((int)type) {
    case ncclInt8:
        EACH(int8_t, int64_t, SAME, SAME);
        break;
    case ncclUint8:
        EACH(uint8_t, uint64_t, SAME, SAME);
        break;
    case ncclInt32:
        EACH(int32_t, int64_t, SAME, SAME);
        break;
    case ncclUint32:
        EACH(uint32_t, uint64_t, SAME, SAME);
        break;
    case ncclInt64:
        EACH(int64_t, int64_t, SAME, SAME);
        break;
    case ncclUint64:
        EACH(uint64_t, uint64_t, SAME, SAME);
        break;
    case ncclFloat16:
        EACH(_Float16, float, SAME, SAME);
        break;
    case ncclFloat32:
        EACH(float, float, SAME, SAME);
        break;
    case ncclFloat64:
        EACH(double, double, SAME, SAME);
        break;
    case ncclBfloat16:
        EACH(uint16_t, float, from_bfloat16, to_bfloat16);
        break;
    default:
        break; /* 8-bit floats are not supported here: see fake_nccl.c */
    }
}

#define SCALE(T, LOAD, STORE)                                                                                          \
    do {                                                                                                               \
        T *p = memory;                                                                                                 \
        for (uint64_t i = 0; i < n; i++) p[i] = (T)STORE(divisor != 0 ? LOAD(p[i]) / divisor : LOAD(p[i]) * factor);   \
    } while (0)
#define DIVIDE(T)                                                                                                      \
    do {                                                                                                               \
        T *p = memory;                                                                                                 \
        for (uint64_t i = 0; i < n; i++) p[i] = (T)(p[i] / (T)divisor);                                                \
    } while (0)
#define BF(x) to_bfloat16((float)(x))

void fake_scale(ncclDataType_t type, void *memory, uint64_t n, double factor, int divisor)
{
    switch ((int)type) {
    case ncclInt8:
        DIVIDE(int8_t);
        break;
    case ncclUint8:
        DIVIDE(uint8_t);
        break;
    case ncclInt32:
        DIVIDE(int32_t);
        break;
    case ncclUint32:
        DIVIDE(uint32_t);
        break;
    case ncclInt64:
        DIVIDE(int64_t);
        break;
    case ncclUint64:
        DIVIDE(uint64_t);
        break;
    case ncclFloat16:
        SCALE(_Float16, SAME, SAME);
        break;
    case ncclFloat32:
        SCALE(float, SAME, SAME);
        break;
    case ncclFloat64:
        SCALE(double, SAME, SAME);
        break;
    case ncclBfloat16:
        SCALE(uint16_t, from_bfloat16, BF);
        break;
    default:
        break;
    }
}

double fake_scalar(ncclDataType_t type, const void *scalar)
{
    float single;
    double value;
    _Float16 half;
    uint16_t bits;
    switch ((int)type) {
    case ncclFloat32:
        memcpy(&single, scalar, sizeof single);
        return (double)single;
    case ncclFloat64:
        memcpy(&value, scalar, sizeof value);
        return value;
    case ncclFloat16:
        memcpy(&half, scalar, sizeof half);
        return (double)half;
    default:
        memcpy(&bits, scalar, sizeof bits);
        return (double)from_bfloat16(bits);
    }
}
