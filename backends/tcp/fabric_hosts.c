/* Which ranks share a host.
 *
 * All ranks must have one answer, or their plans would not fit together.  So rank 0 alone finds it, from what each rank
 * has published in the store when it opened, and publishes the result; the others take it as it is.
 *
 * What counts as one host: ranks with one address.  It is chosen by a rule that gives the same on all of a host
 * (fabric_address.c), and two hosts that reach each other do not have the same.  A transport that knows better, which
 * ranks have attached each other's memory, belongs in hosts_alike().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric_impl.h"

enum { HOSTS_BYTES = 4 }; /* a rank, little-endian */

static const struct wire_address *hosts_address(const struct fabric *fabric, int32_t rank)
{
    return rank == fabric->config.rank ? &fabric->address : &fabric->link[rank].address;
}

static bool hosts_alike(const struct fabric *fabric, int32_t a, int32_t b)
{
    const struct wire_address *x = hosts_address(fabric, a), *y = hosts_address(fabric, b);
    return x->family == y->family && memcmp(x->ip, y->ip, sizeof x->ip) == 0;
}

/* The number of a host is its first rank. */
static int hosts_find(struct fabric *fabric, int32_t *host)
{
    for (int32_t rank = 0; rank < fabric->config.world_size; rank++) {
        int status = rank != fabric->config.rank ? fabric_look_up(&fabric->link[rank]) : TUTTI_OK;
        if (status != TUTTI_OK) return status;
        host[rank] = 0;
        while (host[rank] < rank && (host[host[rank]] != host[rank] || !hosts_alike(fabric, host[rank], rank)))
            host[rank]++;
    }
    return TUTTI_OK;
}

static int hosts_publish(struct fabric *fabric, const int32_t *host, uint8_t *entry, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) entry[i] = (uint8_t)((uint32_t)host[i / HOSTS_BYTES] >> 8 * (i % HOSTS_BYTES));
    return fabric->config.host->store_set(fabric->config.store, "tcp/hosts", entry, bytes);
}

static int hosts_take(struct fabric *fabric, int32_t *host, uint8_t *entry, size_t capacity)
{
    const tutti_host *core = fabric->config.host;
    size_t bytes = 0;
    int status = core->store_get(fabric->config.store, "tcp/hosts", entry, capacity, &bytes, fabric->config.timeout_ms);
    if (status != TUTTI_OK) return status;
    bool good = bytes == capacity;
    for (int32_t rank = 0; good && rank < fabric->config.world_size; rank++) {
        uint32_t value = 0;
        for (size_t i = 0; i < HOSTS_BYTES; i++) value |= (uint32_t)entry[(size_t)rank * HOSTS_BYTES + i] << 8 * i;
        good = value <= (uint32_t)rank;
        host[rank] = (int32_t)value;
    }
    if (good) return TUTTI_OK;
    return core->error(TUTTI_ERR_STORE, "the store's entry tcp/hosts is no list of this version of Tutti: do all ranks "
                                        "run the same?");
}

int fabric_hosts(struct fabric *fabric, int32_t *host)
{
    size_t bytes = (size_t)fabric->config.world_size * HOSTS_BYTES;
    uint8_t *entry = malloc(bytes);
    if (entry == NULL) return fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for the ranks' hosts");
    int status = fabric->config.rank == 0 ? hosts_find(fabric, host) : hosts_take(fabric, host, entry, bytes);
    if (status == TUTTI_OK && fabric->config.rank == 0) status = hosts_publish(fabric, host, entry, bytes);
    free(entry);
    return status;
}
