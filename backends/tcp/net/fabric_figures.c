/* How fast messages of this fabric are: what the device reports, and what was measured. */
#include <stdio.h>

#include "tcp/net/fabric_impl.h"
#include "tcp/net/speed.h"

/* Assumptions about sockets, whose bytes a processor copies. */
enum {
    SOCKET_BYTES = 2500, /* bandwidth of a connection on a fast interface */
    LOOPBACK_NS = 9000,
    LOOPBACK_BUSY_NS = 4000,
    LOOPBACK_BYTES = 2500
};

/* Returns the speed that the kernel reports for the first interface in bytes per us, or 0. */
static int64_t read_interface(const struct fabric *fabric)
{
    char path[64], text[32] = "";
    snprintf(path, sizeof path, "/sys/class/net/%s/speed", fabric->rails.own[0].name);
    FILE *file = fopen(path, "re");
    if (file == NULL) return 0;
    bool read = fgets(text, sizeof text, file) != NULL; /* fails for an interface without a speed */
    fclose(file);
    return read ? speed_parse(text) : 0;
}

/* Fills in what the provider or the interface reports. */
static void report(const struct fabric *fabric, tutti_link *link)
{
    const struct fid_nic *nic = fabric->info->nic;
    bool has_nic = nic != NULL && nic->link_attr != NULL && nic->link_attr->speed > 0;
    int64_t bytes = has_nic ? speed_of((uint64_t)nic->link_attr->speed) : read_interface(fabric);
    if (fabric->kind == &msg_kind && bytes > SOCKET_BYTES) bytes = SOCKET_BYTES;
    link->bytes_per_us = bytes;
    link->bytes_from = bytes > 0 ? TUTTI_LINK_INTERFACE : TUTTI_LINK_ASSUMED;
}

int fabric_find_links(struct fabric *fabric, bool shares_memory, tutti_links *links)
{
    const struct fabric_probes *probes = &fabric->probes;
    if (!shares_memory && (probes->n_near > 0 || !tutti_env_bool(fabric->config.host, "TUTTI_SHM", true)))
        links->within =
            (tutti_link){.latency_ns = LOOPBACK_NS, .overhead_ns = LOOPBACK_BUSY_NS, .bytes_per_us = LOOPBACK_BYTES};
    if (probes->partner < 0) return TUTTI_OK;
    if (fabric->config.rank != 0) return fabric_answer(fabric);
    report(fabric, &links->between);
    int status = fabric_measure(fabric, &links->between);
    links->between.bytes_per_us *= fabric->rails.n; /* the first interface was looked at; the others may be alike */
    return status;
}
