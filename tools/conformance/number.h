/* Elements of every dtype as plain numbers, computed from the formats' definitions without the library's code. */
#ifndef CONFORMANCE_NUMBER_H
#define CONFORMANCE_NUMBER_H

#include <tutti/types.h>

enum {
#define ONE(...) +1
    DTYPES = 0 TUTTI_DTYPES(ONE)
#undef ONE
};
extern const tutti_dtype number_dtypes[DTYPES];

bool number_is_float(tutti_dtype dtype); /* real floating point of any width */
bool number_is_complex(tutti_dtype dtype);
bool number_is_integer(tutti_dtype dtype); /* not bool */
bool number_is_signed(tutti_dtype dtype);
bool number_has_infinity(tutti_dtype dtype);

/* Returns the dtype of a complex number's parts, or any other dtype itself. */
tutti_dtype number_part(tutti_dtype dtype);

/* Significant bits, with the hidden one; the distance of the numbers next to zero. */
int number_digits(tutti_dtype dtype);
double number_least(tutti_dtype dtype);

/* Decodes a real float, and encodes one: rounded once to nearest, ties to even. */
double number_get(tutti_dtype dtype, const void *element);
void number_put(tutti_dtype dtype, void *element, double value);

/* True if the op reduces the dtype, as types.h says. */
bool number_reduces(tutti_dtype dtype, tutti_reduce_op op);

#endif
