#include "group/backend_events.h"

#include "diagnose/health.h"
#include "group/creation.h"
#include "group/creation_wire.h"
#include "group/failure_broadcast.h"
#include "group/group.h"
#include "op/note.h"

struct note_event {
    struct engine_event event; /* first */
    struct tutti_group *group;
    int peer;
    struct note note;
};

static void handle_note(struct engine_event *event)
{
    struct note_event *came = (struct note_event *)event;
    struct tutti_group *group = came->group;
    const struct note *note = &came->note;
    char text[512];
    if (note->type == NOTE_ASK) {
        if (group->failed)
            health_tell(group); /* it missed the first telling */
        else if (!health_answer(group, came->peer, note, text, sizeof text))
            group_fail(group, TUTTI_ERR_MISMATCH, text, true);
    } else if (note->type == NOTE_HERE) {
        health_heard(group, came->peer, note);
    } else if (note->type == NOTE_LEFT) {
        health_left(group, came->peer);
    } else if (note->type == NOTE_FAILED && !group->failed && note->status < 0) {
        group->given_up = note->given_up;
        group_fail_report(group, note->status, note->text,
                          note->sequence); /* and told on: not all know the first one */
    }
    event_memory_give_back(&group->engine->event_memory, came);
}

void backend_events_notified(void *core, int32_t peer, const void *message, size_t bytes)
{
    struct tutti_group *group = core;
    if (creation_wire_is(message, bytes)) {
        creation_receive_message(group, peer, message, bytes);
        return;
    }
    if (group->size < 1 || peer < 0 || peer >= group->size || peer == group->rank) return;
    struct note_event *came = event_memory_take(&group->engine->event_memory, sizeof *came);
    if (came == NULL) return;
    if (!note_parse(message, bytes, &came->note)) {
        event_memory_give_back(&group->engine->event_memory, came);
        return;
    }
    if (came->note.type == NOTE_FAILED || came->note.type == NOTE_LEFT) failure_broadcast_answered(group, peer);
    came->event.handle = handle_note;
    came->group = group;
    came->peer = peer;
    engine_post(group->engine, &came->event);
}
