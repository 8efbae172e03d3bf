/* How fast messages of this fabric are: what the device reports, and what was measured. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "tcp/net/fabric_impl.h"
#include "tcp/net/speed.h"

/* Assumptions about sockets, whose bytes a processor copies. */
enum {
    SOCKET_BYTES = 2500, /* bandwidth of a connection on a fast interface */
    LOOPBACK_NS = 9000,
    LOOPBACK_BUSY_NS = 4000,
    LOOPBACK_BYTES = 2500
};

/* Finds the interface that has this rank's address. */
static bool find_interface(const struct fabric_own_address *own, char name[IF_NAMESIZE])
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0) return false;
    for (struct ifaddrs *entry = all; entry != NULL && !found; entry = entry->ifa_next) {
        char text[INET6_ADDRSTRLEN + IF_NAMESIZE];
        const struct sockaddr *address = entry->ifa_addr;
        if (address == NULL || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) continue;
        socklen_t bytes = address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (getnameinfo(address, bytes, text, sizeof text, NULL, 0, NI_NUMERICHOST) != 0) continue;
        found = strcmp(text, own->text) == 0;
        if (found) snprintf(name, IF_NAMESIZE, "%s", entry->ifa_name);
    }
    freeifaddrs(all);
    return found;
}

/* Returns the speed that the kernel reports for the interface in bytes per us, or 0. */
static int64_t read_interface(const struct fabric *fabric)
{
    char name[IF_NAMESIZE], path[64], text[32] = "";
    if (!find_interface(&fabric->own_address, name)) return 0;
    snprintf(path, sizeof path, "/sys/class/net/%s/speed", name);
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
    return fabric_measure(fabric, &links->between);
}
