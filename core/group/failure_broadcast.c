#include "group/failure_broadcast.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "diagnose/health.h"
#include "group/entries.h"
#include "op/control_message.h"
#include "progress/engine.h"

enum {
    WAIT_MS = 500, /* more than the time for which a peer may hold a failure back: see group_fail_report */
    NAP_US = 50,
    MEMBERS_MOST = 64 /* needs a connection to each member; in larger groups the members must ask the store in time */
};

struct failure_broadcast {
    int left; /* number of members that have not answered */
    bool waits[MEMBERS_MOST];
};

/* True if the failure must be sent to all members.  Other failures are not mistaken for the loss of a peer, or members
 * detect them without the store. */
static bool is_needed(const struct tutti_group *group)
{
    bool hosts = group->root->rank0_hosts_store && group->rank >= 0 && group->global_ranks[group->rank] == 0;
    return hosts && group == group->root && group->failed == TUTTI_ERR_PEER_LOST && group->size <= MEMBERS_MOST;
}

/* Sends a failure, followed by a question.  A peer that did not know the failure answers with its own; any other peer
 * answers the question. */
static void send_to_all(struct tutti_group *group, const struct backend_entry *entry)
{
    struct failure_broadcast *broadcast = group->broadcast;
    uint8_t failure[CONTROL_BYTES], question[CONTROL_BYTES];
    size_t bytes = health_failure(group, failure),
           asks = control_message_encode(&(struct control_message){.type = CONTROL_ASK}, question);
    for (int peer = 0; peer < group->size; peer++) {
        if (peer == group->rank) continue;
        broadcast->waits[peer] = true; /* set before sending, because the loss of the peer may be detected meanwhile */
        broadcast->left++;
        bool sent = !group->root->lost[group->global_ranks[peer]] &&
                    entry->backend->tell(entry->state, peer, failure, bytes) == TUTTI_OK &&
                    entry->backend->tell(entry->state, peer, question, asks) == TUTTI_OK;
        if (!sent) failure_broadcast_answered(group, peer);
    }
}

void failure_broadcast_send(struct tutti_group *group)
{
    struct failure_broadcast broadcast = {0};
    const struct backend_entry *entry = is_needed(group) ? entries_find_control(group) : NULL;
    if (entry == NULL) return;
    group->broadcast = &broadcast;
    int64_t deadline_ns = clock_deadline_ns(WAIT_MS);
    engine_wake_pollers(group->engine);
    send_to_all(group, entry);
    while (broadcast.left > 0 && clock_now_ns() < deadline_ns) /* completions are handled after this */
        if (!engine_poll_backends(group->engine)) usleep(NAP_US);
    group->broadcast = NULL;
}

void failure_broadcast_answered(struct tutti_group *group, int peer)
{
    struct failure_broadcast *broadcast = group->broadcast;
    if (broadcast == NULL || peer < 0 || peer >= group->size || !broadcast->waits[peer]) return;
    broadcast->waits[peer] = false;
    broadcast->left--;
}
