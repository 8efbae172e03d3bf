#include "conformance/values.h"

int32_t values_of_rank(int rank, int64_t i)
{
    return (int32_t)(rank * 1000003 + i * 7 + 1);
}

int32_t values_sum(int size, int64_t i)
{
    int32_t s = 0;
    for (int r = 0; r < size; r++) s += values_of_rank(r, i);
    return s;
}

void values_fill(int32_t *x, int rank, int64_t from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = values_of_rank(rank, from + i);
}

bool values_hold(const int32_t *x, int rank, int64_t from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != values_of_rank(rank, from + i)) return false;
    return true;
}

bool values_hold_sum(const int32_t *x, int size, int64_t from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != values_sum(size, from + i)) return false;
    return true;
}
