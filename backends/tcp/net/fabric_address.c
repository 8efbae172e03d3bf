/* Chooses the addresses at which other ranks reach this one. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "portable/sockets.h"
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

static void set_address(struct iface *iface, const struct sockaddr *address)
{
    bool is_4 = address->sa_family == AF_INET;
    iface->name[0] = '\0';
    memset(iface->ip, 0, sizeof iface->ip);
    memcpy(iface->ip, ip_of(address), is_4 ? 4 : 16);
    iface->family = is_4 ? 4 : 6;
    iface->bits = is_4 ? 32 : 128;
    iface->is_loopback = is_loopback(address);
    inet_ntop(address->sa_family, iface->ip, iface->text, sizeof iface->text);
}

/* ---- interfaces ---------------------------------------------------------------------------------------------- */

static int count_bits(const struct sockaddr *mask)
{
    const uint8_t *ip = ip_of(mask);
    int n = 0, bytes = mask->sa_family == AF_INET ? 4 : 16;
    for (int i = 0; i < bytes; i++) n += __builtin_popcount(ip[i]);
    return n;
}

/* Lists the addresses of interfaces that are up.  The caller frees the list.  Returns NULL if out of memory. */
static struct iface_list *list_addresses(const tutti_host *host)
{
    struct ifaddrs *all = NULL;
    struct iface_list *list = calloc(1, sizeof *list);
    if (list == NULL) host->error(TUTTI_ERR_NO_MEMORY, "no memory for the list of network interfaces");
    if (list == NULL || getifaddrs(&all) != 0) return list;
    for (struct ifaddrs *entry = all; entry != NULL && list->n < IFACE_LIST_MAX; entry = entry->ifa_next) {
        if (!is_ip(entry->ifa_addr) || !(entry->ifa_flags & IFF_UP) || is_link_local(entry->ifa_addr)) continue;
        struct iface *iface = &list->at[list->n++];
        set_address(iface, entry->ifa_addr);
        if (is_ip(entry->ifa_netmask)) iface->bits = count_bits(entry->ifa_netmask);
        snprintf(iface->name, sizeof iface->name, "%s", entry->ifa_name);
    }
    freeifaddrs(all);
    return list;
}

/* Returns the list's entry for the address, or NULL. */
static const struct iface *find_entry(const struct iface_list *list, const struct iface *address)
{
    for (int i = 0; i < list->n; i++)
        if (iface_in_network(&list->at[i], address->family, address->ip, address->family == 4 ? 32 : 128))
            return &list->at[i];
    return NULL;
}

/* ---- the address without TUTTI_IFACE ------------------------------------------------------------------------- */

/* Finds the source address of packets to `host`, without sending any. */
static bool find_route(const char *host, struct iface *own)
{
    char name[256];
    size_t n = strlen(host);
    bool brackets = n > 2 && host[0] == '[' && host[n - 1] == ']';
    snprintf(name, sizeof name, "%.*s", (int)(brackets ? n - 2 : n), brackets ? host + 1 : host);
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    if (getaddrinfo(name, "9", &hints, &found) != 0) return false;
    bool done = false;
    for (struct addrinfo *to = found; to != NULL && !done; to = to->ai_next) {
        int fd = sockets_open(to->ai_family, SOCK_DGRAM, true);
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

static struct iface loopback_address(void)
{
    return (struct iface){
        .name = "lo", .text = "127.0.0.1", .family = 4, .ip = {127, 0, 0, 1}, .bits = 8, .is_loopback = true};
}

/* Chooses an address of the list: loopback if all ranks are on one host, else the one that leads to the store. */
static struct iface choose_by_route(const struct transport_config *config, const struct iface_list *list)
{
    const tutti_host *host = config->host;
    struct iface own = loopback_address();
    bool one_host = config->local_world_size == config->world_size;
    const char *store = host->env("TUTTI_STORE_ADDR");
    if (store == NULL) store = host->env("MASTER_ADDR");
    if (one_host || store == NULL || !find_route(store, &own)) return loopback_address();
    const struct iface *entry = find_entry(list, &own);
    if (entry != NULL) own = *entry;
    if (!own.is_loopback) return own;
    /* A host often resolves its own name to loopback, which other hosts cannot reach. */
    entry = config->local_world_size > 0 ? iface_best(list, false) : NULL;
    if (entry == NULL) return loopback_address();
    TUTTI_LOG_AS(host, "net", 2,
                 "tcp: the store's address is loopback, but %d of %d ranks are on other hosts; using %s "
                 "(TUTTI_IFACE overrides it)",
                 config->world_size - config->local_world_size, config->world_size, entry->text);
    return *entry;
}

/* ---- TUTTI_IFACE --------------------------------------------------------------------------------------------- */

static int fail_to_choose(const tutti_host *host, const struct iface_list *list, const char *wanted, const char *what)
{
    const struct iface *all[IFACE_LIST_MAX];
    char text[512];
    for (int i = 0; i < list->n; i++) all[i] = &list->at[i];
    iface_print(all, list->n, text, sizeof text);
    return host->error(TUTTI_ERR_BACKEND, "TUTTI_IFACE=%.64s: %s; up and with an address are: %s", wanted, what,
                       list->n > 0 ? text : "none");
}

static void set_rails(struct fabric_rails *rails, const struct iface *const *chosen, int n)
{
    rails->n = n < FABRIC_RAILS ? n : FABRIC_RAILS;
    for (int i = 0; i < rails->n; i++) rails->own[i] = *chosen[i];
}

/* Chooses what the value names. */
static int choose_named(const struct transport_config *config, const struct iface_list *list, const char *wanted,
                        struct fabric_rails *rails)
{
    const struct iface *chosen[FABRIC_RAILS];
    const char *unknown = wanted;
    char what[256];
    int length = 0, n = iface_include(list, wanted, chosen, FABRIC_RAILS, &unknown, &length);
    if (n == 0) {
        bool alone = length == (int)strlen(wanted);
        snprintf(what, sizeof what, "no interface with %s%.*s%s or in this network is up and has a usable address",
                 alone ? "this name" : "the name \"",
                 alone         ? 0
                 : length < 64 ? length
                               : 64,
                 unknown, alone ? "" : "\"");
        return fail_to_choose(config->host, list, wanted, what);
    }
    if (n > FABRIC_RAILS)
        TUTTI_LOG_AS(config->host, "net", 1, "tcp: TUTTI_IFACE=%.64s names %d interfaces; using the first %d", wanted,
                     n, FABRIC_RAILS);
    set_rails(rails, chosen, n);
    return TUTTI_OK;
}

/* Chooses all interfaces but those that the value excludes.  The one that leads to the store comes first, so that hosts
 * with differently ordered interfaces find each other. */
static int choose_others(const struct transport_config *config, const struct iface_list *all, const char *wanted,
                         struct iface_list *left, struct fabric_rails *rails)
{
    *left = *all;
    iface_exclude(left, wanted + 1);
    const struct iface *chosen[FABRIC_RAILS];
    struct iface routed = choose_by_route(config, left);
    chosen[0] = find_entry(left, &routed);
    if (chosen[0] == NULL) chosen[0] = iface_best(left, true);
    if (chosen[0] == NULL) return fail_to_choose(config->host, all, wanted, "every interface is excluded");
    set_rails(rails, chosen, chosen[0]->is_loopback ? 1 : iface_append_others(left, chosen, FABRIC_RAILS));
    return TUTTI_OK;
}

int fabric_choose_rails(const struct transport_config *config, struct fabric_rails *rails)
{
    const char *wanted = config->host->env("TUTTI_IFACE");
    struct iface_list *list = list_addresses(config->host), *left = NULL;
    int status = TUTTI_OK;
    if (list == NULL) return TUTTI_ERR_NO_MEMORY;
    if (wanted == NULL) {
        rails->own[0] = choose_by_route(config, list);
        rails->n = 1;
    } else if (wanted[0] != '^') {
        status = choose_named(config, list, wanted, rails);
    } else if ((left = malloc(sizeof *left)) == NULL) {
        status = config->host->error(TUTTI_ERR_NO_MEMORY, "no memory for the list of network interfaces");
    } else {
        status = choose_others(config, list, wanted, left, rails);
    }
    free(left);
    free(list);
    return status;
}

void fabric_print_rails(const struct fabric_rails *rails, char *out, size_t bytes)
{
    const struct iface *own[FABRIC_RAILS];
    for (int i = 0; i < rails->n; i++) own[i] = &rails->own[i];
    iface_print(own, rails->n, out, bytes);
}

/* ---- text and sockets ---------------------------------------------------------------------------------------- */

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

void fabric_from_sockaddr(const void *from, struct wire_address *out)
{
    const struct sockaddr_in *in = from;
    const struct sockaddr_in6 *in6 = from;
    memset(out->ip, 0, sizeof out->ip);
    out->family = in->sin_family == AF_INET ? 4 : 6;
    out->port = ntohs(in->sin_port); /* sin6_port has the same offset */
    if (out->family == 4)
        memcpy(out->ip, &in->sin_addr, 4);
    else
        memcpy(out->ip, &in6->sin6_addr, 16);
}
