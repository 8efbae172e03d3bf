#include "mesh_order.h"

#include <stdbool.h>

/* Appends a host's ranks from place `first` among them on, at most `most` of them.  Returns their number. */
static int append(const int *host, int n, int which, int first, int most, int *places)
{
    int seen = 0, taken = 0;
    for (int rank = 0; rank < n && taken < most; rank++)
        if (host[rank] == which && seen++ >= first) places[taken++] = rank;
    return taken;
}

static int count(const int *host, int n, int which)
{
    int found = 0;
    for (int rank = 0; rank < n; rank++) found += host[rank] == which;
    return found;
}

void mesh_order_by_host(const int *host, int n, int inner, int *place_to_rank)
{
    int hosts = 0, placed = 0;
    for (int rank = 0; rank < n; rank++)
        if (host[rank] >= hosts) hosts = host[rank] + 1;
    for (int rest = 0; rest < 2; rest++)
        for (int which = 0; which < hosts; which++) {
            int ranks = count(host, n, which), whole = ranks - ranks % inner;
            placed += rest ? append(host, n, which, whole, ranks - whole, place_to_rank + placed)
                           : append(host, n, which, 0, whole, place_to_rank + placed);
        }
}
