#include "base/dtype.h"
#include "base/user_op.h"

enum class { INTEGER, FLOAT, COMPLEX, BOOLEAN };

static const struct {
    tutti_dtype dtype;
    enum class class;
    const char *name;
} dtypes[DTYPE_COUNT] = {
#define ROW(dtype, class, name) [DTYPE_##dtype] = {TUTTI_##dtype, class, name},
    TUTTI_DTYPES(ROW)
#undef ROW
};

static const struct {
    const char *name;
    unsigned classes; /* bit per enum class */
} ops[TUTTI_REDUCE_OP_COUNT] = {
#define ROW(op, name, integer, real, complex, boolean, pairwise)                                                       \
    [TUTTI_##op] = {name, integer << INTEGER | real << FLOAT | complex << COMPLEX | boolean << BOOLEAN},
    TUTTI_REDUCE_OPS(ROW)
#undef ROW
};

/* A switch compiles to a jump, which is faster than a search: each operation looks up its dtype several times. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch" /* a dtype without a row does not compile */
int dtype_index(tutti_dtype dtype)
{
    switch (dtype) {
#define CASE(dtype, class, name)                                                                                       \
    case TUTTI_##dtype:                                                                                                \
        return DTYPE_##dtype;
        TUTTI_DTYPES(CASE)
#undef CASE
    }
    return -1;
}
#pragma GCC diagnostic pop

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
    if (user_op_is(op)) return user_op_name(op);
    return op_valid(op) ? ops[op].name : "?";
}

bool dtype_reduces(tutti_dtype dtype, tutti_reduce_op op)
{
    int index = dtype_index(dtype);

    return index >= 0 && op_valid(op) && (ops[op].classes >> dtypes[index].class & 1);
}
