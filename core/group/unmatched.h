/* A message that has come for a receive's peer under a tag that the receive does not take. */
#ifndef UNMATCHED_H
#define UNMATCHED_H

#include <stddef.h>

struct tutti_work;

/* Writes "; rank 1 has sent 64 bytes under tag 7" for a receive or probe that is still waiting, or the empty string if
 * no such message has come or the backend cannot look.  Under the lock, outside of a backend's entries. */
void unmatched_describe(const struct tutti_work *work, char *text, size_t size);

#endif
