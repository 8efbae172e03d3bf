/* Human-readable descriptions of the machine's network and of a fabric. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tcp/net/fabric_impl.h"

struct lines {
    char *at;
    size_t left;
};

static void __attribute__((format(printf, 2, 3))) append(struct lines *lines, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(lines->at, lines->left, format, arguments);
    va_end(arguments);
    size_t used = n < 0 ? 0 : (size_t)n < lines->left ? (size_t)n : lines->left - 1;
    lines->at += used;
    lines->left -= used;
}

static void append_interfaces(struct lines *lines)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) return;
    append(lines, "interfaces:");
    for (struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
        char text[INET6_ADDRSTRLEN + IF_NAMESIZE];
        const struct sockaddr *address = entry->ifa_addr;
        if (address == NULL || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) continue;
        socklen_t bytes = address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (getnameinfo(address, bytes, text, sizeof text, NULL, 0, NI_NUMERICHOST) != 0) continue;
        append(lines, " %s %s%s", entry->ifa_name, text, entry->ifa_flags & IFF_UP ? "" : " (down)");
    }
    append(lines, "\n");
    freeifaddrs(all);
}

static void append_address(struct lines *lines, const tutti_host *host)
{
    struct transport_config config = {.world_size = 2, .local_world_size = 1, .host = host};
    struct fabric_rails rails;
    char text[256];
    if (fabric_choose_rails(&config, &rails) != TUTTI_OK) {
        append(lines, "address for ranks on other hosts: none, because TUTTI_IFACE=%s matches no interface\n",
               host->env("TUTTI_IFACE"));
        return;
    }
    fabric_print_rails(&rails, text, sizeof text);
    if (rails.own[0].is_loopback)
        append(lines, "address for ranks on other hosts: none, because other hosts cannot reach %s\n",
               rails.own[0].text);
    else if (rails.n == 1)
        append(lines, "address for ranks on other hosts: %s (TUTTI_IFACE and MASTER_ADDR choose)\n", rails.own[0].text);
    else
        append(lines, "addresses for ranks on other hosts: %s (TUTTI_IFACE)\n", text);
}

/* Appends the names of the providers that have this kind of endpoint. */
static void append_kind(struct lines *lines, enum fi_ep_type type)
{
    struct fi_info *all = NULL, *hints = fabric_library.dupinfo(NULL);
    char seen[512] = " ";
    if (hints == NULL) return;
    hints->ep_attr->type = type;
    int status = fabric_library.getinfo(FI_VERSION(1, 11), NULL, NULL, 0, hints, &all);
    fabric_library.freeinfo(hints);
    for (const struct fi_info *info = status == 0 ? all : NULL; info != NULL; info = info->next) {
        char name[64];
        snprintf(name, sizeof name, " %s ", info->fabric_attr->prov_name);
        if (strstr(seen, name) != NULL || strlen(seen) + strlen(name) >= sizeof seen) continue;
        strcat(seen, name + 1);
        append(lines, " %s", info->fabric_attr->prov_name);
    }
    if (seen[1] == '\0') append(lines, " none");
    if (all != NULL) fabric_library.freeinfo(all);
}

static void append_providers(struct lines *lines, const tutti_host *host)
{
    const char *wanted = host->env("TUTTI_FABRIC_PROVIDER");
    append(lines, "libfabric %u.%u, providers with connected endpoints:", FI_MAJOR(fabric_library.version()),
           FI_MINOR(fabric_library.version()));
    append_kind(lines, FI_EP_MSG);
    append(lines, "; with reliable datagrams:");
    append_kind(lines, FI_EP_RDM);
    append(lines, "; in use: %s%s\n", wanted != NULL ? wanted : "tcp",
           wanted != NULL ? " (TUTTI_FABRIC_PROVIDER)" : "");
}

static void append_memory(struct lines *lines, const tutti_host *host)
{
    const char *wanted = host->env("TUTTI_SHM");
    append(lines, "ranks of this host: through shared memory%s%s\n", wanted != NULL ? ", TUTTI_SHM=" : "",
           wanted != NULL ? wanted : "");
}

/* Without libfabric the ranks of one host still share memory, so its absence is an error only with TUTTI_SHM=0. */
int fabric_describe_machine(const tutti_host *host, char *text, size_t capacity)
{
    struct lines lines = {text, capacity};
    int status = fabric_load(host);
    if (status != TUTTI_OK && !tutti_env_bool(host, "TUTTI_SHM", true)) return status;
    append_memory(&lines, host);
    if (status != TUTTI_OK) {
        append(&lines, "ranks on other hosts: not reachable, %s\n", fabric_load_error());
        return TUTTI_OK;
    }
    append_providers(&lines, host);
    append_interfaces(&lines);
    append_address(&lines, host);
    return TUTTI_OK;
}

const char *fabric_explain_message(const struct fabric *fabric, size_t bytes, const tutti_path_row *row)
{
    if (fabric->kind->uses_rma == NULL) return NULL;
    if (bytes <= TRANSPORT_PAYLOAD_MAX) return "eager: sent at once with its data";
    if (fabric->kind->uses_rma(fabric, bytes, row)) return "rma: read by the receiver from the sender's memory";
    return "fifo: sent in messages of 64 KiB, which both sides copy";
}

int fabric_describe(const struct fabric *fabric, char *text, size_t capacity)
{
    struct lines lines = {text, capacity};
    int up = 0, striped = 0;
    for (int32_t rank = 0; rank < fabric->config.world_size; rank++) {
        if (!fabric_is_up(fabric, rank)) continue;
        up++;
        striped += (fabric->link[rank]->msg.up & ~1) != 0;
    }
    append(&lines, "tcp: rank %d listens on %s, libfabric provider %s, connected to %d of %d ranks, ",
           fabric->config.rank, fabric->address_text, fabric->info->fabric_attr->prov_name, up,
           fabric->config.world_size - 1);
    if (fabric->rails.n > 1) {
        char rails[256];
        fabric_print_rails(&fabric->rails, rails, sizeof rails);
        append(&lines, "to %d over several of %d interfaces (%s), ", striped, fabric->rails.n, rails);
    }
    append(&lines, "messages above %d bytes wait for their receive\n", TRANSPORT_PAYLOAD_MAX);
    return (int)(lines.at - text);
}
