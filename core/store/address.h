/* Internet addresses: resolves host names and classifies addresses. */
#ifndef STORE_ADDRESS_H
#define STORE_ADDRESS_H

#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { ADDRESS_HOST_MAX = 256, ADDRESS_TEXT_MAX = ADDRESS_HOST_MAX + 16 };

/* Copies host without the brackets of "[::1]".  Returns INVALID_ARGUMENT if host is NULL, empty or too long. */
int address_host(const char *host, char out[ADDRESS_HOST_MAX]);

/* Formats "127.0.0.1:80" or "[::1]:80". */
void address_text(const char *host, uint16_t port, char out[ADDRESS_TEXT_MAX]);

/* Calls getaddrinfo for TCP; "localhost" always resolves.  Returns 0 or getaddrinfo's error. */
int address_resolve(const char *host, uint16_t port, struct addrinfo **list);

/* Returns the text of an error of address_resolve.  Call it before errno changes. */
const char *address_strerror(int failure);

bool address_is_loopback(const struct sockaddr *address);
bool address_is_any(const struct sockaddr *address);
uint16_t address_port(const struct sockaddr *address);

#endif
