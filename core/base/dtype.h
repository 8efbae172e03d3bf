/* Lookups in the tables of dtypes and reduce ops: names, a dense index, and which op reduces which dtype. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <tutti/types.h>

/* Indices of dtypes for other tables, in the order of their table (dtypes.h). */
enum {
#define INDEX(dtype, class, name) DTYPE_##dtype,
    TUTTI_DTYPES(INDEX)
#undef INDEX
        DTYPE_COUNT
};

bool dtype_valid(tutti_dtype dtype);

/* Returns torch's name of a dtype, such as "float32"; "?" if invalid. */
const char *dtype_name(tutti_dtype dtype);

/* Returns DTYPE_INT8 .. DTYPE_COUNT - 1, or -1 if invalid. */
int dtype_index(tutti_dtype dtype);

/* Returns the dtype of an index.  An index may be from a peer's fingerprint: for an invalid one it returns 0, which is
 * not a dtype. */
tutti_dtype dtype_from_index(int index);

/* Returns the name of an op, such as "SUM"; "?" if invalid. */
const char *reduce_op_name(tutti_reduce_op op);

/* True if op reduces dtype; false if either is invalid. */
bool dtype_reduces(tutti_dtype dtype, tutti_reduce_op op);

#endif
