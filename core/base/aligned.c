#include "base/aligned.h"

#include <stdint.h>
#include <stdlib.h>

/* The address of malloc's block precedes the memory. */
void *aligned_new(size_t alignment, size_t bytes)
{
    size_t more = alignment + sizeof(void *);
    char *block = bytes <= SIZE_MAX - more ? malloc(bytes + more) : NULL;
    if (block == NULL) return NULL;
    char *memory = block + sizeof(void *);
    memory += (alignment - (uintptr_t)memory % alignment) % alignment;
    ((void **)(void *)memory)[-1] = block;
    return memory;
}

void aligned_free(void *memory)
{
    if (memory != NULL) free(((void **)memory)[-1]);
}
