/* Failure propagation.  NCCL offers no side channel between peers, so control messages go through the store, which a
 * waiting rank polls.  Only the first message counts: it fails the group. */
#include <stdio.h>
#include <string.h>

#include "ncclb.h"

enum { POLL_NS = 300000000 };

struct control_message {
    int32_t from;
    char text[TUTTI_NOTIFY_MAX];
};

int ncclb_notify(void *state, int32_t peer, const void *message, size_t bytes)
{
    struct ncclb_group *group = state;
    char key[32];
    struct control_message sent = {.from = group->info.rank};
    if (bytes > sizeof sent.text) return TUTTI_ERR_INVALID_ARGUMENT;
    memcpy(sent.text, message, bytes);
    snprintf(key, sizeof key, "nccl/control/%d", peer);
    return group->host->store_set(group->info.store, key, &sent, offsetof(struct control_message, text) + bytes);
}

void ncclb_poll_control(struct ncclb_group *group, int64_t now)
{
    struct control_message message;
    char key[32];
    size_t bytes = 0;
    if (group->info.world_size == 1 || group->notified || group->failed || group->aborted || now < group->control_ns)
        return;
    bool first = group->control_ns == 0;
    group->control_ns = now + POLL_NS;
    if (first) return; /* most waits end before a poll is worth its cost */
    snprintf(key, sizeof key, "nccl/control/%d", group->info.rank);
    if (group->host->store_get(group->info.store, key, &message, sizeof message, &bytes, 0) != TUTTI_OK) return;
    if (bytes < offsetof(struct control_message, text) || bytes > sizeof message) return;
    group->notified = true;
    group->host->notified(group->info.core, message.from, message.text, bytes - offsetof(struct control_message, text));
}
