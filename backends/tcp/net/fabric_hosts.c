/* Which ranks share a host.
 *
 * All ranks must have one answer, or their plans would not fit together.  Each finds it by the same rule from the same
 * data, the address book that all ranks have read from the store, so nobody waits for another rank here.
 *
 * What counts as one host: ranks with one address.  It is chosen by a rule that gives the same on all of a host
 * (fabric_address.c), and two hosts that reach each other do not have the same.  A transport that knows better, which
 * ranks have attached each other's memory, belongs in hosts_first_ranks().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tcp/net/fabric_impl.h"
#include "tcp/net/hosts.h"

static const struct wire_address *hosts_address(const struct fabric *fabric, int32_t rank)
{
    return rank == fabric->config.rank ? &fabric->address : &fabric->addresses[rank];
}

/* The number of a host is its first rank. */
static int hosts_find(struct fabric *fabric, int32_t *host)
{
    int32_t n = fabric->config.world_size;
    const struct wire_address **address = malloc((size_t)n * sizeof *address);
    int status = address != NULL ? TUTTI_OK : TUTTI_ERR_NO_MEMORY;
    for (int32_t rank = 0; rank < n && status == TUTTI_OK; rank++) {
        if (rank != fabric->config.rank) status = fabric_look_up(fabric, rank);
        address[rank] = hosts_address(fabric, rank);
    }
    if (address == NULL || (status == TUTTI_OK && !hosts_first_ranks(address, n, host)))
        status = fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for the addresses of %d ranks", n);
    free(address);
    return status;
}

int fabric_hosts(struct fabric *fabric, int32_t *host)
{
    return hosts_find(fabric, host);
}
