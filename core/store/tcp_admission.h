/* Admission control: limits the connections that have not authenticated yet.
 *
 * A thousand ranks that join at once are all unauthenticated for a moment, so the limit follows the free descriptors
 * and the expected number of clients.  At the limit the server stops accepting and further connections queue in the
 * kernel.  It accepts the next one as soon as a peer authenticates or disconnects.  It drops the oldest unauthenticated
 * peer only after a grace period, so a burst of clients is served in turn and silent peers cannot block others.
 */
#ifndef STORE_TCP_ADMISSION_H
#define STORE_TCP_ADMISSION_H

#include <stdint.h>

enum {
    ADMISSION_UNKNOWN_MAX = 16384, /* limit if the number of clients is unknown; bounds memory */
    ADMISSION_LEAST = 8,
    ADMISSION_OTHER_FDS = 64, /* descriptors reserved for the rest of the program */
    ADMISSION_GRACE_MS = 500
};

/* Returns the current limit of unauthenticated connections, given the number of clients and how many are expected: a
 * quarter of the free descriptors, or the number of clients still expected if that is more, but never more than three
 * quarters. */
int admission_limit(int clients, int expected);

/* Returns how long one of the unauthenticated peers may stay once another connection needs its place.  It is shorter if
 * there are few places, so that a thousand silent connections are dropped within about a second. */
uint64_t admission_grace_ms(int unauthenticated);

/* Warns if the descriptor limit is too low for the expected clients. */
void admission_check_descriptors(int expected);

#endif
