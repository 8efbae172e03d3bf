#include "tcp/net/hosts.h"

#include <stdlib.h>
#include <string.h>

static int compare_hosts(const struct wire_address *x, const struct wire_address *y)
{
    if (x->family != y->family) return x->family < y->family ? -1 : 1;
    return memcmp(x->ip, y->ip, sizeof x->ip);
}

/* Compares two ranks by host, then by rank. */
static int compare_ranks(const void *a, const void *b, void *argument)
{
    const struct wire_address *const *address = argument;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    int order = compare_hosts(address[x], address[y]);
    return order != 0 ? order : (x > y) - (x < y);
}

bool hosts_first_ranks(const struct wire_address **address, int32_t n, int32_t *first)
{
    int32_t *order = malloc((size_t)n * sizeof *order);
    if (order == NULL) return false;
    for (int32_t i = 0; i < n; i++) order[i] = i;
    qsort_r(order, (size_t)n, sizeof *order, compare_ranks, (void *)address);
    for (int32_t i = 0; i < n; i++) {
        bool same = i > 0 && compare_hosts(address[order[i - 1]], address[order[i]]) == 0;
        first[order[i]] = same ? first[order[i - 1]] : order[i];
    }
    free(order);
    return true;
}
