/* What is known about each dtype and each reduce op: names, a dense index, and which op reduces which dtype. */
#ifndef BASE_DTYPE_H
#define BASE_DTYPE_H

#include <tutti/types.h>

/* The dtypes counted through, in the order of their table (dtypes.h): indices of other tables. */
enum {
#define INDEX(dtype, class, name) DTYPE_##dtype,
    TUTTI_DTYPES(INDEX)
#undef INDEX
        DTYPE_COUNT
};

bool dtype_valid(tutti_dtype dtype);

/* "float32" and so on, as torch spells them; "?" if invalid. */
const char *dtype_name(tutti_dtype dtype);

/* DTYPE_INT8 .. DTYPE_COUNT - 1; -1 if invalid. */
int dtype_index(tutti_dtype dtype);

/* An index may come from a peer's fingerprint: 0, which is no dtype, for one that is none. */
tutti_dtype dtype_from_index(int index);

/* "SUM" and so on; "?" if invalid. */
const char *reduce_op_name(tutti_reduce_op op);

/* True if op reduces dtype; false too where either is invalid. */
bool dtype_reduces(tutti_dtype dtype, tutti_reduce_op op);

#endif
