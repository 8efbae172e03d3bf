/* Control messages over a backend's send and recv, for plug-ins without notify.
 *
 * All have one size and a tag that no operation uses.  A group keeps one receive from any source posted, or one per
 * peer if the backend refuses that.  Delivery is best effort, as with notify. */
#ifndef CONTROL_H
#define CONTROL_H

#include <stdbool.h>
#include <tutti/backend.h>

struct note;
struct tutti_group;

/* Tags of collectives are below it, tags of messages above. */
#define CONTROL_TAG (UINT64_C(1) << 62)

/* Posts the group's receives, unless a backend has notify.  All functions require the engine's lock. */
void control_open(struct tutti_group *group);

/* Waits until pending sends have completed, for up to a second. */
void control_flush(struct tutti_group *group);

/* Frees everything, after the backends have been closed. */
void control_close(struct tutti_group *group);

/* Sends a note to a peer: through a backend's notify, else as a message.  Drops it if too many are pending. */
void control_send(struct tutti_group *group, int peer, const struct note *note);

static inline bool control_owns(const tutti_request *request)
{
    return request->tag == CONTROL_TAG;
}

/* Handles the completion of a request that control_owns. */
void control_complete(tutti_request *request, int status);

#endif
