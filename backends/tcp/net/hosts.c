#include "tcp/net/hosts.h"

#include <stdlib.h>
#include <string.h>

/* The ranks, and whether all of them know their host. */
struct order {
    const struct wire_address **address;
    bool by_host;
};

static int compare_hosts(const struct order *order, int32_t a, int32_t b)
{
    const struct wire_address *x = order->address[a], *y = order->address[b];
    if (order->by_host) return (x->host > y->host) - (x->host < y->host);
    if (x->family != y->family) return x->family < y->family ? -1 : 1;
    return memcmp(x->ip, y->ip, sizeof x->ip);
}

static _Thread_local const struct order *sorted_by; /* qsort_r has another form on every system */

/* Compares two ranks by host, then by rank. */
static int compare_ranks(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    int order = compare_hosts(sorted_by, x, y);
    return order != 0 ? order : (x > y) - (x < y);
}

bool hosts_first_ranks(const struct wire_address **address, int32_t n, int32_t *first)
{
    struct order by = {.address = address, .by_host = true};
    int32_t *order = malloc((size_t)n * sizeof *order);
    if (order == NULL) return false;
    for (int32_t i = 0; i < n; i++) {
        order[i] = i;
        by.by_host &= address[i]->host != 0;
    }
    sorted_by = &by;
    qsort(order, (size_t)n, sizeof *order, compare_ranks);
    for (int32_t i = 0; i < n; i++) {
        bool same = i > 0 && compare_hosts(&by, order[i - 1], order[i]) == 0;
        first[order[i]] = same ? first[order[i - 1]] : order[i];
    }
    free(order);
    return true;
}
