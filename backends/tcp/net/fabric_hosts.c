/* Finds which ranks share a host: those with equal host ids, which may use different interfaces.  Where a rank cannot
 * tell its host, those with equal addresses.
 *
 * All ranks must come to the same result, or their plans would not match.  Each rank applies the same rule to the same
 * data, the address book, so no rank waits for another here. */
#include <stdlib.h>

#include "portable/process.h"
#include "tcp/net/fabric_impl.h"
#include "tcp/net/hosts.h"

uint64_t fabric_host_id(void)
{
    return process_host();
}

static const struct wire_address *address_of(const struct fabric *fabric, int32_t rank)
{
    return rank == fabric->config.rank ? &fabric->address : &fabric->addresses[rank];
}

/* Chooses the two ranks that measure the network: rank 0 and the first rank of another host. */
static void choose_partner(struct fabric *fabric, const int32_t *host)
{
    struct fabric_probes *probes = &fabric->probes;
    int32_t own = fabric->config.rank, other = 0, n = fabric->config.world_size;
    while (other < n && host[other] == host[0]) other++;
    probes->partner = other == n ? -1 : own == 0 ? other : own == other ? 0 : -1;
    probes->n_near = -1;
    for (int32_t rank = 0; rank < n; rank++) probes->n_near += host[rank] == host[own];
}

/* Sets host[rank] to the lowest rank on the same host. */
int fabric_hosts(struct fabric *fabric, int32_t *host)
{
    int32_t n = fabric->config.world_size;
    const struct wire_address **address = malloc((size_t)n * sizeof *address);
    int status = address != NULL ? TUTTI_OK : TUTTI_ERR_NO_MEMORY;
    for (int32_t rank = 0; rank < n && status == TUTTI_OK; rank++) {
        if (rank != fabric->config.rank) status = fabric_look_up(fabric, rank);
        address[rank] = address_of(fabric, rank);
    }
    if (address == NULL || (status == TUTTI_OK && !hosts_first_ranks(address, n, host)))
        status = fabric->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for the addresses of %d ranks", n);
    free(address);
    if (status == TUTTI_OK) choose_partner(fabric, host);
    return status;
}
