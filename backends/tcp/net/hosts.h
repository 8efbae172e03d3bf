/* Groups ranks by network address, as a pure function. */
#ifndef TCP_HOSTS_H
#define TCP_HOSTS_H

#include "tcp/net/wire.h"

/* Sets first[rank] to the lowest of the n ranks with the same address, in O(n log n).  Returns false if out of memory.
 */
bool hosts_first_ranks(const struct wire_address **address, int32_t n, int32_t *first);

#endif
