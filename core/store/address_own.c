/* Finds an address of this host that other hosts can reach. */
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <tutti/store.h>
#include <unistd.h>

#include "base/error.h"
#include "store/address.h"

static bool format_unless_loopback(const struct sockaddr *address, socklen_t length, char *host, size_t capacity)
{
    if (address == NULL || address_is_loopback(address)) return false;
    return getnameinfo(address, length, host, (socklen_t)capacity, NULL, 0, NI_NUMERICHOST) == 0;
}

/* Resolves this host's name, which other hosts of a cluster are likely to know too. */
static bool find_by_hostname(char *host, size_t capacity)
{
    char name[ADDRESS_HOST_MAX];
    struct addrinfo *list = NULL;
    bool found = false;
    if (gethostname(name, sizeof name) != 0 || address_resolve(name, 0, &list) != 0) return false;
    for (struct addrinfo *one = list; one != NULL && !found; one = one->ai_next)
        found = format_unless_loopback(one->ai_addr, one->ai_addrlen, host, capacity);
    freeaddrinfo(list);
    return found;
}

/* Returns the address of the first interface that is up, IPv4 first. */
static bool find_by_interface(char *host, size_t capacity)
{
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list) != 0) return false;
    for (int family = AF_INET; family != 0 && !found; family = family == AF_INET ? AF_INET6 : 0)
        for (struct ifaddrs *one = list; one != NULL && !found; one = one->ifa_next) {
            if (one->ifa_addr == NULL || one->ifa_addr->sa_family != family || !(one->ifa_flags & IFF_UP)) continue;
            socklen_t length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
            found = format_unless_loopback(one->ifa_addr, length, host, capacity);
        }
    freeifaddrs(list);
    return found;
}

int tutti_store_own_address(char *host, size_t capacity)
{
    if (host == NULL || capacity == 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "store_own_address: %s",
                         host == NULL ? "host is NULL" : "capacity is 0");
    if (find_by_hostname(host, capacity) || find_by_interface(host, capacity)) return TUTTI_OK;
    return error_set(TUTTI_ERR_NOT_FOUND,
                     "store_own_address: this host has only loopback addresses, or its address does not fit into "
                     "%zu bytes; pass a buffer of at least 64 bytes, or bring up an interface",
                     capacity);
}
