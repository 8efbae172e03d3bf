/* Structs that programs fill, with the size that they have in the program's headers. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include <stddef.h>
#include <tutti/types.h>

/* sized_read for differing sizes. */
int sized_copy(const char *name, const void **given, size_t bytes, void *copy, size_t known);

/* Converts *given, a struct of `bytes` in the program or NULL, to the library's size `known`.  It stays itself if the
 * sizes are equal; otherwise it becomes `copy`, in which the part that the program does not have is zero.  Returns
 * INVALID_ARGUMENT if the size cannot be right, or if the program has set a field that this library does not have. */
static inline int sized_read(const char *name, const void **given, size_t bytes, void *copy, size_t known)
{
    return bytes == known || *given == NULL ? TUTTI_OK : sized_copy(name, given, bytes, copy, known);
}

/* sized_read by the pointer's type: opts is a const type *, copy a type *. */
#define SIZED_READ(type, opts, bytes, copy)                                                                            \
    __extension__({                                                                                                    \
        const void *sized_given = (opts);                                                                              \
        int sized_status = sized_read(#type, &sized_given, (bytes), (copy), sizeof(type));                             \
        (opts) = (const type *)sized_given;                                                                            \
        sized_status;                                                                                                  \
    })

#endif
