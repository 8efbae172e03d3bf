/* Finds a message from a receive's peer whose tag the receive does not match. */
#ifndef UNMATCHED_H
#define UNMATCHED_H

#include <stddef.h>

struct tutti_work;

/* Writes "; rank 1 has sent 64 bytes under tag 7" for a receive or probe that is still waiting.  Writes the empty
 * string if there is no such message or the backend cannot probe.  Lock held, outside of a backend's entries. */
void unmatched_describe(const struct tutti_work *work, char *text, size_t size);

#endif
