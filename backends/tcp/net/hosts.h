/* Groups ranks by host, as a pure function. */
#ifndef TCP_HOSTS_H
#define TCP_HOSTS_H

#include "tcp/net/wire.h"

/* Sets first[rank] to the lowest of the n ranks on the same host, in O(n log n).  Hosts have different ids or, if a
 * rank does not know its host, different addresses.  Returns false if out of memory. */
bool hosts_first_ranks(const struct wire_address **address, int32_t n, int32_t *first);

#endif
