/* Control messages over a backend's send and recv, for plug-ins without notify.
 *
 * All have one size and a tag that no operation uses.  A group keeps one receive from any source posted, or one per
 * peer if the backend refuses that.  Delivery is best effort, as with notify. */
#ifndef CONTROL_CHANNEL_H
#define CONTROL_CHANNEL_H

#include <stdbool.h>
#include <tutti/backend.h>

struct control_message;
struct tutti_group;

/* Tags of collectives are below it, tags of messages above. */
#define CONTROL_TAG (UINT64_C(1) << 62)

/* Posts the group's receives, unless a backend has notify.  All functions require the engine's lock. */
void control_channel_open(struct tutti_group *group);

/* Waits until pending sends have completed, for up to a second. */
void control_channel_flush(struct tutti_group *group);

/* Frees everything, after the backends have been closed. */
void control_channel_close(struct tutti_group *group);

/* Sends a control message to a peer: through a backend's notify, else over this channel.  Drops it if too many are
 * pending. */
void control_channel_send(struct tutti_group *group, int peer, const struct control_message *message);

static inline bool control_channel_owns(const tutti_request *request)
{
    return request->tag == CONTROL_TAG;
}

/* Handles the completion of a request that control_channel_owns. */
void control_channel_complete(tutti_request *request, int status);

#endif
