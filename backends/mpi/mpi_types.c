/* Datatypes and reduce operations.
 *
 * MPI_SUM and MPI_MAX do not support 8-bit and 16-bit floats or bool, may drop NaN, and leave the sign of zero open.
 * All reductions are therefore user-defined operations that call the host's kernels, with results bitwise identical to
 * other backends.  Such a function learns the element type only from its MPI_Datatype, so each dtype has a datatype of
 * its own.
 */
#include <string.h>

#include "mpib.h"

static const tutti_dtype dtypes[] = {
#define VALUE(dtype, class, name) TUTTI_##dtype,
    TUTTI_DTYPES(VALUE)
#undef VALUE
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static MPI_Datatype types[DTYPES];
static MPI_Op ops[TUTTI_REDUCE_OP_COUNT];
static void (*reduce)(tutti_dtype, tutti_reduce_op, void *, const void *, const void *, int64_t);

static void reduce_elements(tutti_reduce_op op, const void *in, void *inout, int n, MPI_Datatype type)
{
    for (int i = 0; i < DTYPES; i++)
        if (types[i] == type) reduce(dtypes[i], op, inout, in, inout, n);
}

/* MPI passes no context to a user function, so each operation has a function of its own. */
#define RUN(op, ...)                                                                                                   \
    static void run_##op(void *in, void *inout, int *n, MPI_Datatype *type)                                            \
    {                                                                                                                  \
        reduce_elements(TUTTI_##op, in, inout, *n, *type);                                                             \
    }
TUTTI_REDUCE_OPS(RUN)
#undef RUN

static MPI_User_function *const functions[TUTTI_REDUCE_OP_COUNT] = {
#define FUNCTION(op, ...) [TUTTI_##op] = run_##op,
    TUTTI_REDUCE_OPS(FUNCTION)
#undef FUNCTION
};

/* True if MPI itself does the reduce op.  AVG and PREMUL_SUM are left to plans, because MPI cannot scale before or
 * after a reduction. */
static bool is_native(tutti_reduce_op op)
{
    return tutti_reduce_op_pairwise(op) == op;
}

static int make_type(tutti_dtype dtype, MPI_Datatype *type)
{
    int error;
    switch (tutti_dtype_bytes(dtype)) {
    case 1:
        error = MPI_Type_dup(MPI_BYTE, type);
        break;
    case 2:
        error = MPI_Type_dup(MPI_UINT16_T, type);
        break;
    case 4:
        error = MPI_Type_dup(MPI_UINT32_T, type);
        break;
    case 8:
        error = MPI_Type_dup(MPI_UINT64_T, type);
        break;
    default:
        error = MPI_Type_contiguous((int)tutti_dtype_bytes(dtype), MPI_BYTE, type);
    }
    return error == MPI_SUCCESS ? MPI_Type_commit(type) : error;
}

int mpib_types_make(const tutti_host *host)
{
    int error = MPI_SUCCESS;
    reduce = host->reduce;
    for (int i = 0; i < DTYPES && error == MPI_SUCCESS; i++) error = make_type(dtypes[i], &types[i]);
    for (int i = 0; i < TUTTI_REDUCE_OP_COUNT && error == MPI_SUCCESS; i++) {
        ops[i] = MPI_OP_NULL;
        if (is_native((tutti_reduce_op)i)) error = MPI_Op_create(functions[i], 1, &ops[i]);
    }
    return error;
}

void mpib_types_free(void)
{
    for (int i = 0; i < DTYPES; i++) MPI_Type_free(&types[i]);
    for (int i = 0; i < TUTTI_REDUCE_OP_COUNT; i++)
        if (ops[i] != MPI_OP_NULL) MPI_Op_free(&ops[i]);
}

MPI_Datatype mpib_type(tutti_dtype dtype)
{
    for (int i = 0; i < DTYPES; i++)
        if (dtypes[i] == dtype) return types[i];
    return MPI_DATATYPE_NULL;
}

MPI_Op mpib_reduce(tutti_reduce_op op)
{
    return (unsigned)op < TUTTI_REDUCE_OP_COUNT ? ops[op] : MPI_OP_NULL;
}
