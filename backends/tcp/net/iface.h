/* Chooses network interfaces by the value of TUTTI_IFACE, as pure functions over a list of addresses. */
#ifndef TCP_IFACE_H
#define TCP_IFACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IFACE_NAME = 16, IFACE_TEXT = 46, IFACE_LIST_MAX = 256 };

/* An address of an interface that is up. */
struct iface {
    char name[IFACE_NAME];
    char text[IFACE_TEXT]; /* the address as text */
    uint32_t family;       /* IP version: 4 or 6 */
    uint8_t ip[16];        /* network byte order; IPv4 uses the first 4 bytes */
    int bits;              /* length of its network's prefix */
    bool is_loopback;
};

struct iface_list {
    int n;
    struct iface at[IFACE_LIST_MAX];
};

/* True if both addresses are in the network of the first `bits` bits of `ip`. */
bool iface_in_network(const struct iface *iface, uint32_t family, const uint8_t *ip, int bits);

/* Returns the list's preferred address: IPv4 before IPv6, loopback last.  Returns NULL if there is none. */
const struct iface *iface_best(const struct iface_list *list, bool loopback);

/* Chooses by a list of names, addresses and networks, separated by commas: at most `most` interfaces, each once, all of
 * one IP version.  A name without an interface of exactly this name stands for all interfaces whose names begin with
 * it; `=name` is never a prefix.  Sets chosen[] and returns how many interfaces match, which may be more than `most`.
 * Returns 0 if an item matches none, and sets *unknown to that item and *length to its length. */
int iface_include(const struct iface_list *list, const char *wanted, const struct iface **chosen, int most,
                  const char **unknown, int *length);

/* Removes the interfaces that an item of the list matches, by a prefix of the name, `=name`, address or network. */
void iface_exclude(struct iface_list *list, const char *unwanted);

/* Appends the other interfaces to chosen[0], the preferred address of each, if their IP version is the same. */
int iface_append_others(const struct iface_list *list, const struct iface **chosen, int most);

/* Prints the interfaces as "eth0 10.0.0.1, eth1 10.1.0.1". */
void iface_print(const struct iface *const *iface, int n, char *out, size_t bytes);

#endif
