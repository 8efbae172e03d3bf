/* Tutti: tables of the dtypes and the reduce operations.
 *
 * One row per dtype and one per reduce op.  Everything that lists them expands these tables: the library, plug-ins, the
 * bridge to DLPack and the tools. */
#ifndef TUTTI_DTYPES_H
#define TUTTI_DTYPES_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dtypes ------------------------------------------------------------------------------------------------ */

/* DLPack's type code in bits 8..15 and the bits of one element in bits 0..7.  A complex number is one element.  A bool
 * is one byte, 0 or 1. */
typedef enum tutti_dtype {
    TUTTI_INT8 = 0x0008,
    TUTTI_INT16 = 0x0010,
    TUTTI_INT32 = 0x0020,
    TUTTI_INT64 = 0x0040,
    TUTTI_UINT8 = 0x0108,
    TUTTI_UINT16 = 0x0110,
    TUTTI_UINT32 = 0x0120,
    TUTTI_UINT64 = 0x0140,
    TUTTI_FLOAT16 = 0x0210,
    TUTTI_FLOAT32 = 0x0220,
    TUTTI_FLOAT64 = 0x0240,
    TUTTI_BFLOAT16 = 0x0410,
    TUTTI_COMPLEX64 = 0x0540,
    TUTTI_COMPLEX128 = 0x0580,
    TUTTI_BOOL = 0x0608,
    TUTTI_FLOAT8_E4M3FN = 0x0a08, /* saturates: results beyond its range become +-448, where torch's cast makes NaN */
    TUTTI_FLOAT8_E5M2 = 0x0c08
} tutti_dtype;

/* Returns the size of one element in bytes. */
static inline int64_t tutti_dtype_bytes(tutti_dtype dtype)
{
    return ((int64_t)dtype & 0xff) / 8;
}

/* The class of a dtype decides which ops reduce it.  A dtype's index in the table is sent to peers, so new rows are
 * appended. */
/* clang-format off */
/*    dtype          class    name */
#define TUTTI_DTYPES(X)                          \
    X(INT8,          INTEGER, "int8")            \
    X(INT16,         INTEGER, "int16")           \
    X(INT32,         INTEGER, "int32")           \
    X(INT64,         INTEGER, "int64")           \
    X(UINT8,         INTEGER, "uint8")           \
    X(UINT16,        INTEGER, "uint16")          \
    X(UINT32,        INTEGER, "uint32")          \
    X(UINT64,        INTEGER, "uint64")          \
    X(FLOAT16,       FLOAT,   "float16")         \
    X(FLOAT32,       FLOAT,   "float32")         \
    X(FLOAT64,       FLOAT,   "float64")         \
    X(BFLOAT16,      FLOAT,   "bfloat16")        \
    X(COMPLEX64,     COMPLEX, "complex64")       \
    X(COMPLEX128,    COMPLEX, "complex128")      \
    X(BOOL,          BOOLEAN, "bool")            \
    X(FLOAT8_E4M3FN, FLOAT,   "float8_e4m3fn")   \
    X(FLOAT8_E5M2,   FLOAT,   "float8_e5m2")
/* clang-format on */

/* ---- reduce operations ------------------------------------------------------------------------------------- */

/* Operations that combine elements.  An op with a dtype that it does not reduce is UNSUPPORTED. */
typedef enum tutti_reduce_op {
    TUTTI_USER_OPS = 0x40000000, /* the ops of tutti_op_create have numbers from here on; no backend gets them */
    TUTTI_SUM = 0,               /* integers wrap; bool: or */
    TUTTI_PRODUCT,               /* integers wrap; bool: and */
    TUTTI_MIN,                   /* NaN propagates; -0.0 < 0.0; no complex */
    TUTTI_MAX,                   /* NaN propagates; -0.0 < 0.0; no complex */
    TUTTI_AVG,                   /* SUM, then divided by the group's size; integers truncate toward zero; not bool */
    TUTTI_PREMUL_SUM,            /* each input times tutti_opts.factor, then SUM; floats and complex only */
    TUTTI_BAND,                  /* BAND, BOR and BXOR: integers and bool only */
    TUTTI_BOR,
    TUTTI_BXOR,
    TUTTI_REDUCE_OP_COUNT
} tutti_reduce_op;

/* The classes of dtypes that an op reduces, and the op that combines two contributions.  The other steps of AVG and
 * PREMUL_SUM come before the first combination and after the last one. */
/* clang-format off */
/*    op          name          INTEGER FLOAT COMPLEX BOOLEAN  pairwise */
#define TUTTI_REDUCE_OPS(X)                                                \
    X(SUM,        "SUM",        1,      1,    1,      1,       SUM)        \
    X(PRODUCT,    "PRODUCT",    1,      1,    1,      1,       PRODUCT)    \
    X(MIN,        "MIN",        1,      1,    0,      1,       MIN)        \
    X(MAX,        "MAX",        1,      1,    0,      1,       MAX)        \
    X(AVG,        "AVG",        1,      1,    1,      0,       SUM)        \
    X(PREMUL_SUM, "PREMUL_SUM", 0,      1,    1,      0,       SUM)        \
    X(BAND,       "BAND",       1,      0,    0,      1,       BAND)       \
    X(BOR,        "BOR",        1,      0,    0,      1,       BOR)        \
    X(BXOR,       "BXOR",       1,      0,    0,      1,       BXOR)
/* clang-format on */

enum tutti_reduce_op_position {
#define TUTTI_REDUCE_OP_POSITION_OF(op, ...) TUTTI_REDUCE_OP_POSITION_##op,
    TUTTI_REDUCE_OPS(TUTTI_REDUCE_OP_POSITION_OF)
#undef TUTTI_REDUCE_OP_POSITION_OF
        TUTTI_REDUCE_OP_ROWS
};

#define TUTTI_REDUCE_OP_CHECK(op, name, ...)                                                                           \
    static_assert((int)TUTTI_REDUCE_OP_POSITION_##op == (int)TUTTI_##op, "row " name " is out of order");
TUTTI_REDUCE_OPS(TUTTI_REDUCE_OP_CHECK)
#undef TUTTI_REDUCE_OP_CHECK
static_assert((int)TUTTI_REDUCE_OP_ROWS == (int)TUTTI_REDUCE_OP_COUNT, "a reduce op has no row");

/* Returns the op that combines two contributions of a valid op. */
static inline tutti_reduce_op tutti_reduce_op_pairwise(tutti_reduce_op op)
{
    static const uint8_t pairwise[TUTTI_REDUCE_OP_COUNT] = {
#define TUTTI_REDUCE_OP_PAIRWISE(op, name, integer, real, complex, boolean, by) TUTTI_##by,
        TUTTI_REDUCE_OPS(TUTTI_REDUCE_OP_PAIRWISE)
#undef TUTTI_REDUCE_OP_PAIRWISE
    };
    return (tutti_reduce_op)pairwise[op];
}

#ifdef __cplusplus
}
#endif
#endif
