/* Handles reports of backends: control messages, lost peers, failures.  These are the services behind
 * tutti_host.notified, peer_lost and failed.  A backend may call them from within its entries, so each only posts an
 * event, which the engine's next round handles. */
#ifndef BACKEND_EVENTS_H
#define BACKEND_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Receives a control message of a peer.  Also engine_hooks.notified. */
void backend_events_notified(void *core, int32_t peer, const void *message, size_t bytes);

/* Reports that the connection to a peer has ended.  core is the first group of the tree, or the one that owns the
 * backend. left: the peer has announced that it leaves. */
void backend_events_peer_lost(void *core, int32_t peer, bool left, const char *why);

/* Reports that the backend of a group has failed. */
void backend_events_failed(void *core, int status, const char *why);

#endif
