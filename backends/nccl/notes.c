/* Failure propagation.  NCCL offers no side channel between peers, so a failure is announced through the store, which a
 * waiting rank polls.  Only the first message counts: it fails the group. */
#include <stdio.h>
#include <string.h>

#include "ncclb.h"

enum { POLL_NS = 300000000 };

struct note {
    int32_t from;
    char text[TUTTI_NOTIFY_MAX];
};

int ncclb_notify(void *state, int32_t peer, const void *message, size_t bytes)
{
    struct ncclb_group *group = state;
    char key[32];
    struct note note = {.from = group->info.rank};
    if (bytes > sizeof note.text) return TUTTI_ERR_INVALID_ARGUMENT;
    memcpy(note.text, message, bytes);
    snprintf(key, sizeof key, "nccl/note/%d", peer);
    return group->host->store_set(group->info.store, key, &note, offsetof(struct note, text) + bytes);
}

void ncclb_poll_control(struct ncclb_group *group, int64_t now)
{
    struct note note;
    char key[32];
    size_t bytes = 0;
    if (group->info.world_size == 1 || group->notified || group->failed || group->aborted || now < group->control_ns)
        return;
    bool first = group->control_ns == 0;
    group->control_ns = now + POLL_NS;
    if (first) return; /* most waits end before a poll is worth its cost */
    snprintf(key, sizeof key, "nccl/note/%d", group->info.rank);
    if (group->host->store_get(group->info.store, key, &note, sizeof note, &bytes, 0) != TUTTI_OK) return;
    if (bytes < offsetof(struct note, text) || bytes > sizeof note) return;
    group->notified = true;
    group->host->notified(group->info.core, note.from, note.text, bytes - offsetof(struct note, text));
}
