#include "base/dtype.h"

/* What a dtype is made of decides which ops it has. */
enum family { INTEGER, FLOAT, COMPLEX, BOOLEAN };

#define DTYPES(X)                                                                                                      \
    X(INT8, INTEGER, "int8")                                                                                           \
    X(INT16, INTEGER, "int16")                                                                                         \
    X(INT32, INTEGER, "int32")                                                                                         \
    X(INT64, INTEGER, "int64")                                                                                         \
    X(UINT8, INTEGER, "uint8")                                                                                         \
    X(UINT16, INTEGER, "uint16")                                                                                       \
    X(UINT32, INTEGER, "uint32")                                                                                       \
    X(UINT64, INTEGER, "uint64")                                                                                       \
    X(FLOAT16, FLOAT, "float16")                                                                                       \
    X(FLOAT32, FLOAT, "float32")                                                                                       \
    X(FLOAT64, FLOAT, "float64")                                                                                       \
    X(BFLOAT16, FLOAT, "bfloat16")                                                                                     \
    X(COMPLEX64, COMPLEX, "complex64")                                                                                 \
    X(COMPLEX128, COMPLEX, "complex128")                                                                               \
    X(BOOL, BOOLEAN, "bool")                                                                                           \
    X(FLOAT8_E4M3FN, FLOAT, "float8_e4m3fn")                                                                           \
    X(FLOAT8_E5M2, FLOAT, "float8_e5m2")

static const struct {
    tutti_dtype dtype;
    enum family family;
    const char *name;
} dtypes[DTYPE_COUNT] = {
#define ROW(dtype, family, name) [DTYPE_##dtype] = {TUTTI_##dtype, family, name},
    DTYPES(ROW)
#undef ROW
};

#define HAS(family) (1u << (family))

static const struct {
    const char *name;
    unsigned families;
} ops[TUTTI_REDUCE_OP_COUNT] = {
    [TUTTI_SUM] = {"SUM", HAS(INTEGER) | HAS(FLOAT) | HAS(COMPLEX) | HAS(BOOLEAN)},
    [TUTTI_PRODUCT] = {"PRODUCT", HAS(INTEGER) | HAS(FLOAT) | HAS(COMPLEX) | HAS(BOOLEAN)},
    [TUTTI_MIN] = {"MIN", HAS(INTEGER) | HAS(FLOAT) | HAS(BOOLEAN)},
    [TUTTI_MAX] = {"MAX", HAS(INTEGER) | HAS(FLOAT) | HAS(BOOLEAN)},
    [TUTTI_AVG] = {"AVG", HAS(INTEGER) | HAS(FLOAT) | HAS(COMPLEX)},
    [TUTTI_PREMUL_SUM] = {"PREMUL_SUM", HAS(FLOAT) | HAS(COMPLEX)},
    [TUTTI_BAND] = {"BAND", HAS(INTEGER) | HAS(BOOLEAN)},
    [TUTTI_BOR] = {"BOR", HAS(INTEGER) | HAS(BOOLEAN)},
    [TUTTI_BXOR] = {"BXOR", HAS(INTEGER) | HAS(BOOLEAN)},
};

/* A jump, no search: each operation asks several times. */
int dtype_index(tutti_dtype dtype)
{
    switch (dtype) {
#define CASE(dtype, family, name)                                                                                      \
    case TUTTI_##dtype:                                                                                                \
        return DTYPE_##dtype;
        DTYPES(CASE)
#undef CASE
    }
    return -1;
}

tutti_dtype dtype_from_index(int index)
{
    return index >= 0 && index < DTYPE_COUNT ? dtypes[index].dtype : (tutti_dtype)0;
}

bool dtype_valid(tutti_dtype dtype)
{
    return dtype_index(dtype) >= 0;
}

const char *dtype_name(tutti_dtype dtype)
{
    int index = dtype_index(dtype);

    return index < 0 ? "?" : dtypes[index].name;
}

static bool op_valid(tutti_reduce_op op)
{
    return (unsigned)op < TUTTI_REDUCE_OP_COUNT;
}

const char *reduce_op_name(tutti_reduce_op op)
{
    return op_valid(op) ? ops[op].name : "?";
}

bool dtype_reduces(tutti_dtype dtype, tutti_reduce_op op)
{
    int index = dtype_index(dtype);

    return index >= 0 && op_valid(op) && (ops[op].families & HAS(dtypes[index].family));
}
