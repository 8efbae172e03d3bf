/* NCCL has no way to tell a peer something besides its operations, so that a failure is told through the store: a
 * rank that waits looks there now and then.  Only the first note counts: after it the group has failed. */
#include <stdio.h>
#include <string.h>

#include "ncclb.h"

enum { ASK_NS = 300000000 };

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

void ncclb_look_for_note(struct ncclb_group *group, int64_t now)
{
    struct note note;
    char key[32];
    size_t bytes = 0;
    if (group->info.world_size == 1 || group->noted || group->told || group->aborted || now < group->note_ns) return;
    bool first = group->note_ns == 0;
    group->note_ns = now + ASK_NS;
    if (first) return; /* most waits are over before it is worth asking */
    snprintf(key, sizeof key, "nccl/note/%d", group->info.rank);
    if (group->host->store_get(group->info.store, key, &note, sizeof note, &bytes, 0) != TUTTI_OK) return;
    if (bytes < offsetof(struct note, text) || bytes > sizeof note) return;
    group->noted = true;
    group->host->notified(group->info.core, note.from, note.text, bytes - offsetof(struct note, text));
}
