/* Zeroes a struct of some hundred bytes through the C library, which stores with the processor's widest registers.  A
 * compiler that knows the size stores eight bytes at a time instead. */
#ifndef CLEAR_H
#define CLEAR_H

#include <string.h>

static inline void clear(void *memory, size_t bytes)
{
    __asm__("" : "+r"(bytes)); /* hides the size */
    memset(memory, 0, bytes);
}

#endif
