/* The networks that are simulated. */
#include "simulate.h"

#include <string.h>

enum { GBIT = 125 }; /* 1 Gbit/s in bytes per us */

/* Within a host all networks have the same: two server processors of about 2022, with single-copy reads.  Eager and
 * segment sizes are the tcp backend's. */
#define HOST                                                                                                           \
    .local_latency = 300, .local_overhead = 250, .local_rank = 10000, .memory = 80000, .reduce = 8000, .copy = 12000,  \
    .eager_bytes = 64 << 10, .segment_bytes = 256 << 10, .reduce_most = 16 << 10

const struct sim_network sim_networks[] = {
    /* TCP leaves 94.1 % of the bit rate.  Latency: two hosts on one switch. */
    {.name = "ethernet-1", .latency = 20000, .overhead = 3000, .rail = 0.941 * GBIT, .rank = 5200, .rails = 1, HOST},
    /* Q. Cai, S. Chaudhary, M. Vuppalapati, J. Hwang, R. Agarwal, "Understanding Host Network Stack Overheads",
     * SIGCOMM 2021: a core moves about 42 Gbit/s with TCP. */
    {.name = "ethernet-100", .latency = 8000, .overhead = 3000, .rail = 94.1 * GBIT, .rank = 5200, .rails = 1, HOST},
    /* L. Shalev, H. Ayoub, N. Bshara, E. Sabbag, "A Cloud-Optimized Transport Protocol for Elastic and Scalable HPC",
     * IEEE Micro 40(6), 2020: about 15 us.  Four network cards of 100 Gbit/s, as in p4d.24xlarge. */
    {.name = "efa", .latency = 13500, .overhead = 750, .rail = 97.0 * GBIT, .rank = 0, .rails = 4, HOST},
    /* InfiniBand NDR: below 1 us between two ports (ConnectX-7 data sheet, NVIDIA 2021), plus a switch. */
    {.name = "infiniband-400", .latency = 900, .overhead = 250, .rail = 392.0 * GBIT, .rank = 0, .rails = 1, HOST},
    {.name = NULL},
};

const struct sim_network *sim_find_network(const char *name)
{
    for (const struct sim_network *network = sim_networks; network->name != NULL; network++)
        if (strcmp(network->name, name) == 0) return network;
    return NULL;
}

struct coll_link sim_link(const struct sim_network *network)
{
    return (struct coll_link){.latency_ns = (int64_t)(network->latency + 2 * network->overhead),
                              .bytes_per_us = (int64_t)network->rail,
                              .overhead_ns = (int64_t)network->overhead,
                              .host_bytes_per_us = (int64_t)(network->rail * network->rails),
                              .processor_bytes_per_us = (int64_t)network->rank,
                              .segment_bytes = network->segment_bytes};
}
