/* Lists ranks by host, from a number for each rank's host. */
#include "coll.h"

#include <stdlib.h>

static int compare_keys(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sets first[rank] to the lowest rank with the same host.  Sorting by host, then rank, puts that one at the head of
 * its host's run. */
static void find_first_ranks(const int32_t *host, int size, int64_t *key, int *first)
{
    for (int i = 0; i < size; i++) key[i] = (int64_t)host[i] * ((int64_t)1 << 32) + i;
    qsort(key, (size_t)size, sizeof *key, compare_keys);
    for (int i = 0, head = 0; i < size; i++) {
        int rank = (int)(key[i] & INT32_MAX), before = i > 0 ? (int)(key[i - 1] & INT32_MAX) : rank;
        if (host[rank] != host[before] || i == 0) head = rank;
        first[rank] = head;
    }
}

/* Replaces first ranks by host numbers, in the order of first ranks.  Returns the number of hosts. */
static int number_hosts(int *of, int size)
{
    int n = 0;
    for (int i = 0; i < size; i++) of[i] = of[i] == i ? n++ : of[of[i]]; /* a first rank comes before the others */
    return n;
}

/* Sorts the ranks by host, ascending on each host, with a counting sort. */
static void list_ranks(const int *of, int size, int n, int *begin, int *rank)
{
    for (int h = 0; h <= n; h++) begin[h] = 0;
    for (int i = 0; i < size; i++) begin[of[i]]++;
    for (int h = 1; h <= n; h++) begin[h] += begin[h - 1];        /* each host's end */
    for (int i = size - 1; i >= 0; i--) rank[--begin[of[i]]] = i; /* back to each host's begin */
}

struct coll_hosts *coll_hosts_new(const int32_t *host, int size)
{
    struct coll_hosts *hosts = malloc(sizeof *hosts + (3 * (size_t)size + 1) * sizeof(int));
    int64_t *key = malloc(((size_t)size + 1) * sizeof *key);
    if (!hosts || !key) {
        free(hosts);
        free(key);
        return NULL;
    }
    int *of = (int *)(hosts + 1), *rank = of + size, *begin = rank + size;
    find_first_ranks(host, size, key, of);
    free(key);
    int n = number_hosts(of, size);
    list_ranks(of, size, n, begin, rank);
    *hosts = (struct coll_hosts){.n = n, .in_order = true, .least = size, .of = of, .begin = begin, .rank = rank};
    for (int i = 0; i < size; i++) hosts->in_order &= rank[i] == i;
    for (int h = 0; h < n; h++) {
        int ranks = begin[h + 1] - begin[h];
        hosts->least = ranks < hosts->least ? ranks : hosts->least;
        hosts->most = ranks > hosts->most ? ranks : hosts->most;
    }
    return hosts;
}
