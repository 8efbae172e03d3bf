/* Control messages as they come in: hands each to what it is about. */
#ifndef BACKEND_EVENTS_H
#define BACKEND_EVENTS_H

#include <stddef.h>
#include <stdint.h>

/* A control message of a peer: the host service behind tutti_host.notified, and engine_hooks.notified.  What it says is
 * done in the engine's next round. */
void backend_events_notified(void *core, int32_t peer, const void *message, size_t bytes);

#endif
