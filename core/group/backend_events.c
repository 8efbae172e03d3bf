#include "group/backend_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "diagnose/health.h"
#include "group/creation.h"
#include "group/creation_receive.h"
#include "group/creation_wire.h"
#include "group/failure_broadcast.h"
#include "group/group_fail.h"
#include "group/losses.h"
#include "op/control_message.h"
#include "progress/work.h"

/* ---- control messages --------------------------------------------------------------------------------------- */

struct message_event {
    struct engine_event event; /* first member: see handle_message */
    struct tutti_group *group;
    int peer;
    struct control_message message;
};
EVENT_CHECK_SIZE(struct message_event);

static void handle_message(struct engine_event *event)
{
    struct message_event *received = (struct message_event *)event;
    struct tutti_group *group = received->group;
    const struct control_message *message = &received->message;
    char text[512];
    if (message->type == CONTROL_FAILED) health_receive_failure(group, received->peer);
    if (message->type == CONTROL_ASK) {
        if (group->failed)
            health_send_failure(group); /* the peer missed the first message */
        else if (!health_answer(group, received->peer, message, text, sizeof text))
            group_fail(group, TUTTI_ERR_MISMATCH, text, true);
    } else if (message->type == CONTROL_HERE) {
        health_receive_position(group, received->peer, message);
    } else if (message->type == CONTROL_LEFT) {
        health_receive_left(group, received->peer);
    } else if (message->type == CONTROL_FAILED && !group->failed && message->status < 0) {
        group->given_up = message->given_up;
        group_fail_report(group, message->status, message->text,
                          message->sequence); /* sent on, because not all ranks may know it */
    }
    event_memory_give_back(&group->engine->event_memory, received);
}

void backend_events_notified(void *core, int32_t peer, const void *message, size_t bytes)
{
    struct tutti_group *group = core;
    if (creation_wire_is(message, bytes)) {
        creation_receive_message(group, peer, message, bytes);
        return;
    }
    if (group->size < 1 || peer < 0 || peer >= group->size || peer == group->rank) return;
    struct message_event *received = event_memory_take(&group->engine->event_memory, sizeof *received);
    if (received == NULL) return;
    if (!control_message_parse(message, bytes, &received->message)) {
        event_memory_give_back(&group->engine->event_memory, received);
        return;
    }
    if (received->message.type == CONTROL_FAILED || received->message.type == CONTROL_LEFT)
        failure_broadcast_answered(group, peer);
    received->event.handle = handle_message;
    received->group = group;
    received->peer = peer;
    engine_post(group->engine, &received->event);
}

/* ---- lost peers ---------------------------------------------------------------------------------------------- */

struct lost_event {
    struct engine_event event; /* first member: see handle_lost */
    struct tutti_group *first; /* first of the groups that use the lost connection */
    int peer;                  /* global rank */
    bool left;
    char why[200];
};
EVENT_CHECK_SIZE(struct lost_event);

/* Records the loss of a member that has not left. */
static void record_loss(struct tutti_group *group, int peer, const char *text)
{
    if (group->rank < 0 || group->local_of == NULL || group->local_of[peer] < 0 || group->failed || group->shut) return;
    if (group->lost_text == NULL) group->lost_text = strdup(text);
    if (TAILQ_EMPTY(&group->works)) return;
    char what[160], whole[500];
    work_describe(TAILQ_FIRST(&group->works), what, sizeof what);
    snprintf(whole, sizeof whole, "%s: %s", what, text);
    group_fail_report(group, TUTTI_ERR_PEER_LOST, whole, UINT64_MAX);
}

/* Handles a lost peer.  If the peer has left, operations that wait for it fail through their requests, and data that it
 * has sent may still arrive.  A group with a backend that the tree's first group does not have is alone on its
 * connections: the other groups detect the loss on their own. */
static void handle_lost(struct engine_event *event)
{
    struct lost_event *lost = (struct lost_event *)event;
    struct tutti_group *root = lost->first->root, *group;
    char text[300];
    snprintf(text, sizeof text, "rank %d is lost: %s", lost->peer, lost->why);
    if (lost->first == root || !lost->left) losses_add(root, lost->peer, lost->left, lost->why);
    if (lost->first == root || !lost->left) root->lost[lost->peer] = true;
    if (lost->first == root) creation_peer_lost(root, lost->peer, lost->left, text);
    TAILQ_FOREACH(group, &root->tree, tree_link)
    {
        if (!lost->left && (lost->first == root || group == lost->first)) record_loss(group, lost->peer, text);
    }
    event_memory_give_back(&root->engine->event_memory, lost);
}

void backend_events_peer_lost(void *core, int32_t peer, bool left, const char *why)
{
    struct tutti_group *first = core;
    if (peer < 0 || peer >= first->size) return;
    failure_broadcast_answered(first, peer);
    struct lost_event *lost = event_memory_take(&first->engine->event_memory, sizeof *lost);
    if (lost == NULL) return;
    *lost = (struct lost_event){
        .event.handle = handle_lost, .first = first, .peer = first->global_ranks[peer], .left = left};
    snprintf(lost->why, sizeof lost->why, "%s", why);
    error_append_limit(lost->why, sizeof lost->why);
    engine_post(first->engine, &lost->event);
}

/* ---- failures of a backend ------------------------------------------------------------------------------------ */

struct failed_event {
    struct engine_event event; /* first member: see handle_failed */
    struct tutti_group *group;
    int status;
    char why[ERROR_TEXT_MAX];
};
EVENT_CHECK_SIZE(struct failed_event);

static void handle_failed(struct engine_event *event)
{
    struct failed_event *failed = (struct failed_event *)event;
    char text[ERROR_TEXT_MAX + 100];
    snprintf(text, sizeof text, "group %s: %s", failed->group->name, failed->why);
    if (!failed->group->failed && !failed->group->shut) group_fail(failed->group, failed->status, text, true);
    event_memory_give_back(&failed->group->engine->event_memory, failed);
}

void backend_events_failed(void *core, int status, const char *why)
{
    struct tutti_group *group = core;
    struct failed_event *failed = event_memory_take(&group->engine->event_memory, sizeof *failed);
    if (failed == NULL) return;
    *failed = (struct failed_event){.event.handle = handle_failed, .group = group, .status = status};
    snprintf(failed->why, sizeof failed->why, "%s", why);
    engine_post(group->engine, &failed->event);
}
