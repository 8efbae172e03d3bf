/* The dtypes by name, and whole numbers written in them. */
#ifndef BENCH_DTYPE_H
#define BENCH_DTYPE_H

#include <tutti/types.h>

enum dtype_class { CLASS_BOOL, CLASS_INTEGER, CLASS_FLOAT, CLASS_COMPLEX };

struct dtype {
    tutti_dtype dtype;
    enum dtype_class class;
    int exact;                   /* all whole numbers of 0 .. exact are representable */
    int exponent_bits, mantissa; /* of floats; of a complex number's parts */
};

/* Returns NULL if no dtype has this name. */
const struct dtype *dtype_find(const char *name);

/* Returns all names, for messages. */
const char *dtype_names(void);

/* Writes n values in dtype to memory.  A complex number's imaginary part is the value times imaginary. */
void dtype_encode(const struct dtype *dtype, const double *value, int n, double imaginary, void *memory);

/* Returns the relative distance of element i from value, for complex numbers that of the farther part. */
double dtype_error(const struct dtype *dtype, const void *memory, int i, double value, double imaginary);

#endif
