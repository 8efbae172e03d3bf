/* Reads structs that programs fill and whose size differs between versions of the headers. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include <stddef.h>
#include <tutti/types.h>

/* Does sized_read's work if the sizes differ. */
int sized_copy(const char *name, const void **given, size_t bytes, void *copy, size_t known);

/* Converts *given, a struct of `bytes` in the program or NULL, to the library's size `known`.  *given is unchanged if
 * the sizes are equal.  Otherwise it points to `copy`, where fields that the program lacks are zero.  Returns
 * INVALID_ARGUMENT if the size cannot be right, or if the program has set a field that this library does not have. */
static inline int sized_read(const char *name, const void **given, size_t bytes, void *copy, size_t known)
{
    return bytes == known || *given == NULL ? TUTTI_OK : sized_copy(name, given, bytes, copy, known);
}

/* Calls sized_read with the pointer's own type: opts is a const type *, copy a type *. */
#define SIZED_READ(type, opts, bytes, copy)                                                                            \
    __extension__({                                                                                                    \
        const void *sized_given = (opts);                                                                              \
        int sized_status = sized_read(#type, &sized_given, (bytes), (copy), sizeof(type));                             \
        (opts) = (const type *)sized_given;                                                                            \
        sized_status;                                                                                                  \
    })

#endif
