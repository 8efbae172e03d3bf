#include "base/dtype.h"

/* What a dtype is made of decides which ops it has. */
enum family { INTEGER, FLOAT, COMPLEX, BOOLEAN };

static const struct {
    tutti_dtype dtype;
    enum family family;
    const char *name;
} dtypes[DTYPE_COUNT] = {
    [DTYPE_INT8] = {TUTTI_INT8, INTEGER, "int8"},
    [DTYPE_INT16] = {TUTTI_INT16, INTEGER, "int16"},
    [DTYPE_INT32] = {TUTTI_INT32, INTEGER, "int32"},
    [DTYPE_INT64] = {TUTTI_INT64, INTEGER, "int64"},
    [DTYPE_UINT8] = {TUTTI_UINT8, INTEGER, "uint8"},
    [DTYPE_UINT16] = {TUTTI_UINT16, INTEGER, "uint16"},
    [DTYPE_UINT32] = {TUTTI_UINT32, INTEGER, "uint32"},
    [DTYPE_UINT64] = {TUTTI_UINT64, INTEGER, "uint64"},
    [DTYPE_FLOAT16] = {TUTTI_FLOAT16, FLOAT, "float16"},
    [DTYPE_FLOAT32] = {TUTTI_FLOAT32, FLOAT, "float32"},
    [DTYPE_FLOAT64] = {TUTTI_FLOAT64, FLOAT, "float64"},
    [DTYPE_BFLOAT16] = {TUTTI_BFLOAT16, FLOAT, "bfloat16"},
    [DTYPE_COMPLEX64] = {TUTTI_COMPLEX64, COMPLEX, "complex64"},
    [DTYPE_COMPLEX128] = {TUTTI_COMPLEX128, COMPLEX, "complex128"},
    [DTYPE_BOOL] = {TUTTI_BOOL, BOOLEAN, "bool"},
    [DTYPE_FLOAT8_E4M3FN] = {TUTTI_FLOAT8_E4M3FN, FLOAT, "float8_e4m3fn"},
    [DTYPE_FLOAT8_E5M2] = {TUTTI_FLOAT8_E5M2, FLOAT, "float8_e5m2"},
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

int dtype_index(tutti_dtype dtype)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (dtypes[i].dtype == dtype) return i;
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
