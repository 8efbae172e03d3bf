#include "base/sized.h"

#include <string.h>

#include "base/error.h"

enum { SIZED_MAX = 4096, SIZED_ALIGN = 8 };

/* Returns the first byte from known on that is set, or bytes. */
static size_t first_set(const unsigned char *data, size_t known, size_t bytes)
{
    size_t i = known;
    while (i < bytes && data[i] == 0) i++;
    return i;
}

int sized_copy(const char *name, const void **given, size_t bytes, void *copy, size_t known)
{
    if (bytes == 0 || bytes > SIZED_MAX || bytes % SIZED_ALIGN != 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "the size of %s is given as %zu; pass sizeof(%s), which is %zu in libtutti " TUTTI_VERSION,
                         name, bytes, name, known);
    size_t set = first_set(*given, known, bytes);
    if (set < bytes)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "%s has %zu bytes in this program and sets byte %zu, which libtutti " TUTTI_VERSION
                         " does not know (it knows %zu); load a libtutti as new as the program's headers, or leave "
                         "fields zero that are newer than " TUTTI_VERSION,
                         name, bytes, set, known);
    memset(copy, 0, known);
    memcpy(copy, *given, bytes < known ? bytes : known);
    *given = copy;
    return TUTTI_OK;
}
