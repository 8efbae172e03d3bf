#include "store/address.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"

int address_host(const char *host, char out[ADDRESS_HOST_MAX])
{
    size_t bytes = host == NULL ? 0 : strnlen(host, ADDRESS_HOST_MAX);
    if (bytes == 0 || bytes >= ADDRESS_HOST_MAX)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "tcp store: host is %s; pass a name or an address",
                         host == NULL ? "NULL"
                         : bytes == 0 ? "empty"
                                      : "too long");
    bool bracketed = host[0] == '[' && host[bytes - 1] == ']' && bytes > 2;
    memcpy(out, host + bracketed, bytes - 2 * bracketed);
    out[bytes - 2 * bracketed] = '\0';
    return TUTTI_OK;
}

void address_text(const char *host, uint16_t port, char out[ADDRESS_TEXT_MAX])
{
    snprintf(out, ADDRESS_TEXT_MAX, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host, port);
}

int address_resolve(const char *host, uint16_t port, struct addrinfo **list)
{
    char service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    snprintf(service, sizeof service, "%u", port);
    int status = getaddrinfo(host, service, &hints, list);
    /* RFC 6761: localhost always means loopback, even on a host without /etc/hosts. */
    if (status != 0 && strcasecmp(host, "localhost") == 0) status = getaddrinfo("127.0.0.1", service, &hints, list);
    return status;
}

const char *address_strerror(int failure)
{
    return failure == EAI_SYSTEM ? strerror(errno) : gai_strerror(failure);
}

bool address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(in6) || (IN6_IS_ADDR_V4MAPPED(in6) && in6->s6_addr[12] == 127);
}

bool address_is_any(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) return ((const struct sockaddr_in *)address)->sin_addr.s_addr == INADDR_ANY;
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
    static const uint8_t mapped_any[16] = {[10] = 0xff, [11] = 0xff};
    return IN6_IS_ADDR_UNSPECIFIED(in6) || memcmp(in6, mapped_any, 16) == 0;
}

uint16_t address_port(const struct sockaddr *address)
{
    return ntohs(address->sa_family == AF_INET ? ((const struct sockaddr_in *)address)->sin_port
                                               : ((const struct sockaddr_in6 *)address)->sin6_port);
}
