/* Chooses the address at which other ranks reach this one. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tcp/net/fabric_impl.h"

static const void *ip_of(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) return &((const struct sockaddr_in *)(const void *)address)->sin_addr;
    return &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
}

static bool is_ip(const struct sockaddr *address)
{
    return address != NULL && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

/* True for an IPv6 link-local address, whose scope means nothing to another host. */
static bool is_link_local(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)ip_of(address));
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)ip_of(address));
    return *(const uint8_t *)ip_of(address) == 127;
}

static void set_address(struct fabric_own_address *own, const struct sockaddr *address)
{
    own->family = address->sa_family == AF_INET ? 4 : 6;
    inet_ntop(address->sa_family, ip_of(address), own->text, sizeof own->text);
}

/* A network in CIDR notation. */
struct network {
    int family;
    uint8_t ip[16];
    int bits;
};

static bool parse_network(const char *text, struct network *network)
{
    char copy[INET6_ADDRSTRLEN + 8];
    const char *slash = strchr(text, '/');
    size_t length = slash != NULL ? (size_t)(slash - text) : strlen(text);
    if (length >= sizeof copy) return false;
    memcpy(copy, text, length);
    copy[length] = '\0';
    memset(network, 0, sizeof *network);
    network->family = inet_pton(AF_INET, copy, network->ip) == 1    ? AF_INET
                      : inet_pton(AF_INET6, copy, network->ip) == 1 ? AF_INET6
                                                                    : 0;
    int most = network->family == AF_INET ? 32 : 128;
    network->bits = most;
    if (network->family == 0 || slash == NULL) return network->family != 0;
    char *end;
    long bits = strtol(slash + 1, &end, 10);
    network->bits = (int)bits;
    return end != slash + 1 && *end == '\0' && bits >= 0 && bits <= most;
}

static bool in_network(const struct sockaddr *address, const struct network *network)
{
    if (address->sa_family != network->family) return false;
    const uint8_t *ip = ip_of(address);
    int whole = network->bits / 8, rest = network->bits % 8;
    if (memcmp(ip, network->ip, (size_t)whole) != 0) return false;
    return rest == 0 || (ip[whole] ^ network->ip[whole]) >> (8 - rest) == 0;
}

/* Returns a rank of preference; lower is better. */
static int rate_address(const struct ifaddrs *entry)
{
    return (entry->ifa_addr->sa_family == AF_INET6) + 2 * is_loopback(entry->ifa_addr);
}

/* Finds the best address of an interface that is up.  `wanted` is its name or network, or NULL for any. */
static bool find_address(const char *wanted, bool loopback, struct fabric_own_address *own)
{
    struct ifaddrs *all = NULL, *best = NULL;
    struct network network;
    bool by_network = wanted != NULL && parse_network(wanted, &network);
    if (getifaddrs(&all) != 0) return false;
    for (struct ifaddrs *entry = all; entry != NULL; entry = entry->ifa_next) {
        if (!is_ip(entry->ifa_addr) || !(entry->ifa_flags & IFF_UP) || is_link_local(entry->ifa_addr)) continue;
        if (!loopback && is_loopback(entry->ifa_addr)) continue;
        if (by_network ? !in_network(entry->ifa_addr, &network)
                       : wanted != NULL && strcmp(entry->ifa_name, wanted) != 0)
            continue;
        if (best == NULL || rate_address(entry) < rate_address(best)) best = entry;
    }
    if (best != NULL) set_address(own, best->ifa_addr);
    freeifaddrs(all);
    return best != NULL;
}

/* Finds the source address of packets to `host`, without sending any. */
static bool find_route(const char *host, struct fabric_own_address *own)
{
    char name[256];
    size_t n = strlen(host);
    bool brackets = n > 2 && host[0] == '[' && host[n - 1] == ']';
    snprintf(name, sizeof name, "%.*s", (int)(brackets ? n - 2 : n), brackets ? host + 1 : host);
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    if (getaddrinfo(name, "9", &hints, &found) != 0) return false;
    bool done = false;
    for (struct addrinfo *to = found; to != NULL && !done; to = to->ai_next) {
        int fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        struct sockaddr_storage source;
        socklen_t bytes = sizeof source;
        if (fd < 0) continue;
        if (connect(fd, to->ai_addr, to->ai_addrlen) == 0 && getsockname(fd, (struct sockaddr *)&source, &bytes) == 0 &&
            is_ip((struct sockaddr *)&source) && !is_link_local((struct sockaddr *)&source)) {
            set_address(own, (struct sockaddr *)&source);
            done = true;
        }
        close(fd);
    }
    freeaddrinfo(found);
    return done;
}

static bool is_loopback_text(const char *text)
{
    return strncmp(text, "127.", 4) == 0 || strcmp(text, "::1") == 0;
}

bool fabric_is_loopback(const struct fabric_own_address *own)
{
    return is_loopback_text(own->text);
}

static void set_loopback(struct fabric_own_address *own)
{
    *own = (struct fabric_own_address){.text = "127.0.0.1", .family = 4};
}

int fabric_choose_address(const struct transport_config *config, struct fabric_own_address *own)
{
    const tutti_host *host = config->host;
    const char *wanted = host->env("TUTTI_IFACE");
    if (wanted != NULL) {
        if (find_address(wanted, true, own)) return TUTTI_OK;
        return host->error(TUTTI_ERR_BACKEND,
                           "TUTTI_IFACE=%.64s: no interface with this name or in this network is up and has an "
                           "address; `ip addr` lists them",
                           wanted);
    }
    bool one_host = config->local_world_size == config->world_size;
    const char *store = host->env("TUTTI_STORE_ADDR");
    if (store == NULL) store = host->env("MASTER_ADDR");
    if (one_host || store == NULL || !find_route(store, own)) set_loopback(own);
    if (!is_loopback_text(own->text)) return TUTTI_OK;
    set_loopback(own);
    /* A host often resolves its own name to loopback, which other hosts cannot reach. */
    if (config->local_world_size > 0 && !one_host && find_address(NULL, false, own))
        host->log(2,
                  "tcp: the store's address is loopback, but %d of %d ranks are on other hosts; using %s "
                  "(TUTTI_IFACE overrides it)",
                  config->world_size - config->local_world_size, config->world_size, own->text);
    return TUTTI_OK;
}

void fabric_print_address(const struct wire_address *address, char *out, size_t bytes)
{
    char ip[INET6_ADDRSTRLEN] = "?";
    inet_ntop(address->family == 4 ? AF_INET : AF_INET6, address->ip, ip, sizeof ip);
    snprintf(out, bytes, address->family == 4 ? "%s:%u" : "[%s]:%u", ip, address->port);
}

socklen_t fabric_to_sockaddr(const struct wire_address *address, struct sockaddr_storage *out)
{
    struct sockaddr_in *in = (void *)out;
    struct sockaddr_in6 *in6 = (void *)out;
    memset(out, 0, sizeof *out);
    if (address->family == 4) {
        in->sin_family = AF_INET;
        in->sin_port = htons(address->port);
        memcpy(&in->sin_addr, address->ip, sizeof in->sin_addr);
        return sizeof *in;
    }
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(address->port);
    memcpy(&in6->sin6_addr, address->ip, sizeof in6->sin6_addr);
    return sizeof *in6;
}
