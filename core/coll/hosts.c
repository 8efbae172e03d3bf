/* The ranks by host, from a number for each rank's host. */
#include "coll.h"

#include <stdlib.h>

/* A host's number, counted in the order of first ranks: that of the first rank with the same host. */
static int hosts_number(const int32_t *host, int rank, int *of, int *n)
{
    for (int i = 0; i < rank; i++)
        if (host[i] == host[rank]) return of[i];
    return (*n)++;
}

struct coll_hosts *coll_hosts_new(const int32_t *host, int size)
{
    struct coll_hosts *hosts = malloc(sizeof *hosts + (3 * (size_t)size + 1) * sizeof(int));
    if (!hosts) return NULL;
    int *of = (int *)(hosts + 1), *rank = of + size, *begin = rank + size, n = 0, at = 0;
    for (int i = 0; i < size; i++) of[i] = hosts_number(host, i, of, &n);
    *hosts = (struct coll_hosts){.n = n, .least = size, .of = of, .begin = begin, .rank = rank};
    for (int h = 0; h < n; h++) {
        begin[h] = at;
        for (int i = 0; i < size; i++)
            if (of[i] == h) rank[at++] = i;
        int ranks = at - begin[h];
        hosts->least = ranks < hosts->least ? ranks : hosts->least;
        hosts->most = ranks > hosts->most ? ranks : hosts->most;
    }
    begin[n] = at;
    return hosts;
}
