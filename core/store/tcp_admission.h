/* How many connections may be at the server that have not proved the token yet ("strangers").
 *
 * A thousand ranks that join at once are all strangers for a moment, so the limit follows the descriptors and the
 * number of clients that are expected.  At the limit the server accepts no more: the kernel holds what comes.  As soon
 * as a stranger proves the token or leaves, the next connection is accepted.  The oldest stranger is dropped for it
 * only after a grace, so that a burst of clients is served in turn, and strangers that say nothing keep nobody out.
 */
#ifndef STORE_TCP_ADMISSION_H
#define STORE_TCP_ADMISSION_H

#include "store/tcp_conn.h"

enum {
    ADMISSION_UNKNOWN_MAX = 16384, /* strangers where the number of clients is not known: bounds their memory */
    ADMISSION_LEAST = 8,
    ADMISSION_OTHER_FDS = 64, /* descriptors that the program has for other things */
    ADMISSION_GRACE_MS = 500
};

/* How many strangers there may be now: a quarter of the free descriptors, more where more clients are still expected,
 * but never more than three quarters. */
int admission_limit(const struct tcp_server *server);

/* How long a stranger stays when another connection needs its place: shorter where there are few places, so that a
 * thousand silent connections pass within about a second. */
uint64_t admission_grace_ms(const struct tcp_server *server);

/* Warns where there are fewer descriptors than the expected clients need. */
void admission_check_descriptors(const struct tcp_server *server);

#endif
