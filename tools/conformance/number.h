/* Reads and writes elements of every dtype as plain numbers.  It follows the formats' definitions and uses no code of
 * the library. */
#ifndef CONFORMANCE_NUMBER_H
#define CONFORMANCE_NUMBER_H

#include <tutti/types.h>

enum {
#define ONE(...) +1
    DTYPES = 0 TUTTI_DTYPES(ONE)
#undef ONE
};
extern const tutti_dtype number_dtypes[DTYPES];

bool number_is_float(tutti_dtype dtype); /* real floats of any width */
bool number_is_complex(tutti_dtype dtype);
bool number_is_integer(tutti_dtype dtype); /* false for bool */
bool number_is_signed(tutti_dtype dtype);
bool number_has_infinity(tutti_dtype dtype);

/* Returns the dtype of a complex number's parts, or the dtype itself if it is not complex. */
tutti_dtype number_part(tutti_dtype dtype);

/* number_digits returns the significant bits, including the hidden one.  number_least returns the distance between
 * numbers next to zero. */
int number_digits(tutti_dtype dtype);
double number_least(tutti_dtype dtype);

/* Decode and encode a real float.  number_put rounds once to nearest, ties to even. */
double number_get(tutti_dtype dtype, const void *element);
void number_put(tutti_dtype dtype, void *element, double value);

/* True if the op reduces the dtype, as types.h says. */
bool number_reduces(tutti_dtype dtype, tutti_reduce_op op);

#endif
