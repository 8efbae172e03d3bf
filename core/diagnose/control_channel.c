#include "diagnose/control_channel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/little_endian.h"
#include "base/log.h"
#include "op/control_message.h"
#include "progress/engine.h"
#include "progress/engine_step.h"
#include "state/group_state.h"

enum {
    LENGTH = 8, /* size of the message, sent before it */
    FRAME = LENGTH + CONTROL_BYTES,
    SENDS_A_RANK = 8, /* pending sends per rank; beyond that messages are dropped */
    FLUSH_NS = 1000 * 1000 * 1000,
    FLUSH_NAP_US = 50
};

#define FINGERPRINT UINT64_C(0x65746f6e) /* the same on both ends, so it never mismatches */

struct frame {
    tutti_request request;     /* first member: a request's address is its frame's */
    struct engine_event event; /* posts the receive again, after the backend has returned */
    LIST_ENTRY(frame) link;
    struct control_channel *control;
    bool receives;
    uint8_t data[FRAME];
};

struct control_channel {
    struct tutti_group *group;
    const struct backend_entry *entry;
    LIST_HEAD(, frame) frames;
    int n_sends;
};

static void drop(struct frame *frame)
{
    if (!frame->receives) frame->control->n_sends--;
    LIST_REMOVE(frame, link);
    free(frame);
}

static struct frame *new_frame(struct control_channel *control, int peer, bool receives)
{
    struct frame *frame = calloc(1, sizeof *frame);
    if (frame == NULL) return NULL;
    frame->control = control;
    frame->receives = receives;
    frame->request.peer = peer;
    LIST_INSERT_HEAD(&control->frames, frame, link);
    if (!receives) control->n_sends++;
    return frame;
}

static void prepare(struct frame *frame)
{
    frame->request = (tutti_request){.peer = frame->request.peer,
                                     .tag = CONTROL_TAG,
                                     .fingerprint = FINGERPRINT,
                                     .data = frame->data,
                                     .bytes = FRAME,
                                     .owner = frame};
}

/* ---- receiving --------------------------------------------------------------------------------------------- */

/* Checks the size only: control_message_parse checks the bytes, which come from a peer. */
static void deliver(const struct frame *frame)
{
    uint64_t bytes;
    memcpy(&bytes, frame->data, sizeof bytes);
    bytes = le64(bytes);
    int peer = frame->request.peer >= 0 ? frame->request.peer : frame->request.source;
    if (bytes <= CONTROL_BYTES)
        frame->control->group->engine->hooks->notified(frame->control->group, peer, frame->data + LENGTH,
                                                       (size_t)bytes);
}

static int post(struct frame *frame)
{
    const struct backend_entry *entry = frame->control->entry;
    int status;
    do {
        prepare(frame);
        status = entry->backend->recv(entry->state, &frame->request);
        if (status == TUTTI_REQUEST_DONE) deliver(frame);
    } while (status == TUTTI_REQUEST_DONE);
    return status;
}

static void post_again(struct engine_event *event)
{
    struct frame *frame = (struct frame *)(void *)((char *)event - offsetof(struct frame, event));
    if (!frame->control->group->shut && post(frame) == TUTTI_REQUEST_PENDING) return;
    drop(frame);
}

void control_channel_complete(tutti_request *request, int status)
{
    struct frame *frame = (struct frame *)(void *)request;
    if (frame->receives && status == TUTTI_OK) {
        deliver(frame);
        frame->event.handle = post_again;
        engine_post(frame->control->group->engine, &frame->event);
    } else {
        drop(frame); /* posting it again would only repeat the error */
    }
}

/* ---- sending ----------------------------------------------------------------------------------------------- */

static void send_frame(struct tutti_group *group, int peer, const void *message, size_t bytes)
{
    struct control_channel *control = group->control;
    if (control == NULL || bytes > CONTROL_BYTES || control->n_sends >= SENDS_A_RANK * group->size) return;
    struct frame *frame = new_frame(control, peer, false);
    if (frame == NULL) return;
    uint64_t length = le64(bytes);
    memcpy(frame->data, &length, sizeof length);
    memcpy(frame->data + LENGTH, message, bytes);
    prepare(frame);
    if (control->entry->backend->send(control->entry->state, &frame->request) != TUTTI_REQUEST_PENDING) drop(frame);
}

/* Sends through notify if a backend has it.  Device backends get CONTROL_FAILED only: some can send no other message,
 * because they use the store. */
void control_channel_send(struct tutti_group *group, int peer, const struct control_message *message)
{
    uint8_t wire[CONTROL_BYTES];
    size_t bytes = control_message_encode(message, wire);
    for (int device = 0; device < (message->type == CONTROL_FAILED ? 2 : 1); device++)
        for (int i = 0; i < group->n_entries[device]; i++) {
            const struct backend_entry *entry = &group->entries[device][i];
            if (TUTTI_HAS(entry->backend, notify) &&
                entry->backend->notify(entry->state, peer, wire, bytes) == TUTTI_OK)
                return;
        }
    send_frame(group, peer, wire, bytes);
}

/* ---- opening and closing --------------------------------------------------------------------------------------- */

/* Returns the group's first point-to-point backend, or NULL if a backend has notify. */
static const struct backend_entry *find_entry(const struct tutti_group *group)
{
    const struct backend_entry *found = NULL;
    for (int i = 0; i < group->n_entries[0]; i++) {
        const struct backend_entry *entry = &group->entries[0][i];
        if (TUTTI_HAS(entry->backend, notify)) return NULL;
        if (found == NULL && TUTTI_HAS(entry->backend, send)) found = entry;
    }
    return found;
}

/* Posts a receive.  Returns false if the backend refuses it. */
static bool listen_to(struct control_channel *control, int peer)
{
    struct frame *frame = new_frame(control, peer, true);
    if (frame == NULL) return false;
    if (post(frame) == TUTTI_REQUEST_PENDING) return true;
    drop(frame);
    return false;
}

void control_channel_open(struct tutti_group *group)
{
    const struct backend_entry *entry = find_entry(group);
    if (entry == NULL || group->size < 2) return;
    struct control_channel *control = calloc(1, sizeof *control);
    if (control == NULL) return; /* ranks whose calls differ then notice at their timeout */
    control->group = group;
    control->entry = entry;
    LIST_INIT(&control->frames);
    group->control = control;
    if (!TUTTI_HAS(entry->backend, arm)) group->engine->n_unarmed++;
    if (listen_to(control, TUTTI_ANY_SOURCE)) return;
    for (int peer = 0; peer < group->size; peer++)
        if (peer != group->rank && !listen_to(control, peer))
            log_write(LOG_INFO, LOG_GROUP,
                      "group %s: %s posts no receive for control messages from rank %d; its failures show as timeouts",
                      group->name, entry->backend->name, group->global_ranks[peer]);
}

void control_channel_flush(struct tutti_group *group)
{
    int64_t end = clock_now_ns() + FLUSH_NS;
    while (group->control != NULL && group->control->n_sends > 0 && clock_now_ns() < end)
        if (!engine_step(group->engine)) usleep(FLUSH_NAP_US);
}

void control_channel_close(struct tutti_group *group)
{
    struct control_channel *control = group->control;
    if (control == NULL) return;
    if (!TUTTI_HAS(control->entry->backend, arm)) group->engine->n_unarmed--;
    while (!LIST_EMPTY(&control->frames)) drop(LIST_FIRST(&control->frames));
    free(control);
    group->control = NULL;
}
