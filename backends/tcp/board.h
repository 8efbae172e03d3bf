#ifndef BOARD_H
#define BOARD_H
#include <stddef.h>
static inline size_t board_bytes(int n)
{
    return (size_t)n * 128;
}
#endif
