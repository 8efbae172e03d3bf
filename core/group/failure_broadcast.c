#include "group/failure_broadcast.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "diagnose/health.h"
#include "group/entries.h"
#include "op/control_message.h"
#include "progress/engine.h"

enum {
    WAIT_MS = 500, /* longer than a peer may hold a failure back for earlier operations: group_fail_report */
    NAP_US = 50,
    MEMBERS_MOST = 64 /* a connection to each; in larger groups the members have to ask the store in time */
};

struct failure_broadcast {
    int left; /* members that have not answered */
    bool waits[MEMBERS_MOST];
};

/* Other failures are not taken for a peer's loss; they are found without the store. */
static bool is_needed(const struct tutti_group *group)
{
    bool hosts = group->root->rank0_hosts_store && group->rank >= 0 && group->global_ranks[group->rank] == 0;
    return hosts && group == group->root && group->failed == TUTTI_ERR_PEER_LOST && group->size <= MEMBERS_MOST;
}

/* Sends a failure, and a question behind it.  The peer answers the failure with its own if it is news to it, else the
 * question. */
static void send_to_all(struct tutti_group *group, const struct backend_entry *entry)
{
    struct failure_broadcast *spread = group->broadcast;
    uint8_t failure[CONTROL_BYTES], question[CONTROL_BYTES];
    size_t bytes = health_failure(group, failure),
           asks = control_message_encode(&(struct control_message){.type = CONTROL_ASK}, question);
    for (int peer = 0; peer < group->size; peer++) {
        if (peer == group->rank) continue;
        spread->waits[peer] = true; /* set before sending: the loss of the peer may be found meanwhile */
        spread->left++;
        bool sent = !group->root->lost[group->global_ranks[peer]] &&
                    entry->backend->tell(entry->state, peer, failure, bytes) == TUTTI_OK &&
                    entry->backend->tell(entry->state, peer, question, asks) == TUTTI_OK;
        if (!sent) failure_broadcast_answered(group, peer);
    }
}

void failure_broadcast_send(struct tutti_group *group)
{
    struct failure_broadcast spread = {0};
    const struct backend_entry *entry = is_needed(group) ? entries_find_control(group) : NULL;
    if (entry == NULL) return;
    group->broadcast = &spread;
    int64_t deadline_ns = clock_deadline_ns(WAIT_MS);
    engine_wake_pollers(group->engine);
    send_to_all(group, entry);
    while (spread.left > 0 && clock_now_ns() < deadline_ns) /* completions are handled later, as always */
        if (!engine_poll_backends(group->engine)) usleep(NAP_US);
    group->broadcast = NULL;
}

void failure_broadcast_answered(struct tutti_group *group, int peer)
{
    struct failure_broadcast *spread = group->broadcast;
    if (spread == NULL || peer < 0 || peer >= group->size || !spread->waits[peer]) return;
    spread->waits[peer] = false;
    spread->left--;
}
