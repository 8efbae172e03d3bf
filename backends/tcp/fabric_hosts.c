/* Which ranks share a host.
 *
 * All ranks must have one answer, or their plans would not fit together.  So rank 0 alone finds it, from what each rank
 * has published in the store when it opened, and publishes the result; the others take it as it is.
 *
 * What counts as one host: ranks with one address.  It is chosen by a rule that gives the same on all of a host
 * (fabric_address.c), and two hosts that reach each other do not have the same.  A transport that knows better, which
 * ranks have attached each other's memory, belongs in hosts_first_ranks().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric_impl.h"
#include "hosts.h"

enum { HOSTS_BYTES = 4 }; /* a rank, little-endian */

static const struct wire_address *hosts_address(const struct fabric *fabric, int32_t rank)
{
    return rank == fabric->config.rank ? &fabric->address : &fabric->link[rank].address;
}

/* The number of a host is its first rank. */
static int hosts_find(struct fabric *fabric, int32_t *host)
{
    int32_t n = fabric->config.world_size;
    const struct wire_address **address = malloc((size_t)n * sizeof *address);
    int status = address != NULL ? TUTTI_OK : TUTTI_ERR_NO_MEMORY;
    for (int32_t rank = 0; rank < n && status == TUTTI_OK; rank++) {
        if (rank != fabric->config.rank) status = fabric_look_up(&fabric->link[rank]);
        address[rank] = hosts_address(fabric, rank);
    }
    if (address == NULL || (status == TUTTI_OK && !hosts_first_ranks(address, n, host)))
        status = fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for the addresses of %d ranks", n);
    free(address);
    return status;
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
