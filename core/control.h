/* Control messages over a backend's own messages: for plug-ins that have send and recv, and no notify.
 *
 * They are messages of one size under a tag that no operation has.  A group keeps a receive from any source posted for
 * them.  A backend that has none from any source gets one for each peer.  As with notify, they are best effort. */
#ifndef CONTROL_H
#define CONTROL_H

#include <stdbool.h>
#include <tutti/backend.h>

struct note;
struct tutti_group;

/* The tags of collectives are below, those of messages above. */
#define CONTROL_TAG (UINT64_C(1) << 62)

/* Posts the group's receives, if it has no backend with notify.  All functions want the lock held. */
void control_open(struct tutti_group *group);

/* Waits up to a second until what was sent has left. */
void control_flush(struct tutti_group *group);

/* Frees all.  The backends are closed. */
void control_close(struct tutti_group *group);

/* Sends a note to a peer: through a backend's notify, else in a message of this file, if there is room for one. */
void control_send(struct tutti_group *group, int peer, const struct note *note);

static inline bool control_owns(const tutti_request *request)
{
    return request->tag == CONTROL_TAG;
}

/* The backend has completed a request of this file. */
void control_complete(tutti_request *request, int status);

#endif
