/* Finds dtypes by name, and writes whole numbers in a dtype. */
#ifndef BENCH_DTYPE_H
#define BENCH_DTYPE_H

#include <tutti/types.h>

enum dtype_class { CLASS_BOOL, CLASS_INTEGER, CLASS_FLOAT, CLASS_COMPLEX };

struct dtype {
    tutti_dtype dtype;
    enum dtype_class class;
    int exact;                   /* all whole numbers from 0 to this one are representable */
    int exponent_bits, mantissa; /* of a float, or of a complex number's parts */
};

/* Returns the dtype with this name, or NULL. */
const struct dtype *dtype_find(const char *name);

/* Returns the names of all dtypes, for messages. */
const char *dtype_names(void);

/* Writes n values to memory in this dtype.  A complex number's imaginary part is the value times `imaginary`. */
void dtype_encode(const struct dtype *dtype, const double *value, int n, double imaginary, void *memory);

/* Returns the relative distance of element i from `value`.  For a complex number, returns the larger of both parts'. */
double dtype_error(const struct dtype *dtype, const void *memory, int i, double value, double imaginary);

#endif
