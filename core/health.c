#include "health.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fingerprint.h"
#include "group.h"
#include "note.h"
#include "work.h"

enum { HISTORY = 64 };

struct peer_state {
    uint64_t latest, fingerprint;
    int64_t heard_ns; /* 0: never */
    char waits_for[200];
};

struct health {
    uint64_t sequence[HISTORY], fingerprint[HISTORY];
    uint64_t latest, latest_fingerprint;
    struct peer_state peer[];
};

struct health *health_new(int size)
{
    return calloc(1, sizeof(struct health) + (size_t)size * sizeof(struct peer_state));
}

void health_free(struct health *health)
{
    free(health);
}

void health_issued(struct health *health, uint64_t sequence, uint64_t fingerprint)
{
    health->sequence[sequence % HISTORY] = sequence;
    health->fingerprint[sequence % HISTORY] = fingerprint;
    health->latest = sequence;
    health->latest_fingerprint = fingerprint;
}

/* ---- notes ------------------------------------------------------------------------------------------------- */

static void note_send(struct tutti_group *group, int peer, const struct note *note)
{
    uint8_t wire[NOTE_BYTES];
    size_t bytes = note_encode(note, wire);
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_doors[device]; i++) {
            const struct group_door *door = &group->doors[device][i];
            if (TUTTI_HAS(door->backend, notify) && door->backend->notify(door->state, peer, wire, bytes) == TUTTI_OK)
                return;
        }
}

void health_tell(struct tutti_group *group)
{
    struct note note = {.type = NOTE_FAILED, .status = group->failed, .sequence = group->failed_sequence};
    snprintf(note.text, sizeof note.text, "%s", group->failed_text != NULL ? group->failed_text : "");
    for (int peer = 0; peer < group->size; peer++)
        if (peer != group->rank) note_send(group, peer, &note);
}

/* ---- asking ------------------------------------------------------------------------------------------------ */

static void mark_peer(const tutti_request *request, void *argument)
{
    bool *marked = argument;
    if (request->peer >= 0) marked[request->peer] = true;
}

/* Which peers the work waits for; NULL when out of memory.  The caller frees it. */
static bool *awaited(const struct tutti_work *work)
{
    bool *marked = calloc((size_t)work->group->size + 1, sizeof *marked);
    if (marked == NULL) return NULL;
    if (work->exec != NULL)
        exec_each_pending(work->exec, mark_peer, marked);
    else
        mark_peer(&work->request, marked);
    marked[work->group->rank] = false;
    return marked;
}

void health_ask(struct tutti_work *work)
{
    bool *marked = awaited(work);
    if (marked == NULL) return;
    struct note note = {.type = NOTE_ASK, .sequence = work->op.sequence, .fingerprint = work->fingerprint};
    for (int peer = 0; peer < work->group->size; peer++)
        if (marked[peer]) note_send(work->group, peer, &note);
    free(marked);
}

/* The fingerprint of the collective before this one; 0 where it is not known any more. */
static uint64_t call_before(const struct health *health, uint64_t fingerprint)
{
    for (unsigned i = 0; i < HISTORY; i++) {
        if (health->fingerprint[i] != fingerprint || health->sequence[i] < 2) continue;
        unsigned at = (i + HISTORY - 1) % HISTORY;
        return health->sequence[at] == health->sequence[i] - 1 ? health->fingerprint[at] : 0;
    }
    return 0;
}

void health_describe_mismatch(const struct tutti_group *group, int peer, uint64_t theirs, uint64_t mine, char *text,
                              size_t size)
{
    char a[160], b[160];
    if (fingerprint_same_call(theirs, mine)) {
        uint64_t before = call_before(group->health, mine);
        fingerprint_describe(mine, a, sizeof a);
        if (before != 0) fingerprint_describe(before, b, sizeof b);
        int here = group->global_ranks[group->rank];
        int used = snprintf(text, size, "rank %d and rank %d called %s, but their earlier calls differ",
                            group->global_ranks[peer], here, a);
        if (before != 0 && used > 0 && (size_t)used < size)
            snprintf(text + used, size - (size_t)used, "; on rank %d the one before was %s", here, b);
        return;
    }
    fingerprint_describe(theirs, a, sizeof a);
    fingerprint_describe(mine, b, sizeof b);
    snprintf(text, size, "rank %d called %s, rank %d called %s", group->global_ranks[peer], a,
             group->global_ranks[group->rank], b);
}

/* "rank 1, rank 3 (is at #40 broadcast(..))": the end of a chain of ranks that wait for each other is told. */
static void list_awaited(const struct tutti_work *work, char *text, size_t size)
{
    bool *marked = work->started ? awaited(work) : NULL;
    size_t used = 0;
    text[0] = '\0';
    for (int peer = 0; marked != NULL && peer < work->group->size && used < size; peer++) {
        const struct peer_state *state = &work->group->health->peer[peer];
        char call[160] = "", where[200] = "";
        if (!marked[peer]) continue;
        if (state->heard_ns < work->start_ns) {
            snprintf(where, sizeof where, " (no answer)");
        } else if (state->latest > 0 && state->latest < work->op.sequence) {
            fingerprint_describe(state->fingerprint, call, sizeof call);
            snprintf(where, sizeof where, " (is at #%" PRIu64 " %s)", state->latest, call);
        }
        used += (size_t)snprintf(text + used, size - used, "%srank %d%s", used > 0 ? ", " : "",
                                 work->group->global_ranks[peer], where);
    }
    free(marked);
}

static void answer(struct tutti_group *group, int peer, const struct note *ask)
{
    struct health *health = group->health;
    unsigned at = ask->sequence % HISTORY;
    if (health->sequence[at] == ask->sequence && health->fingerprint[at] != ask->fingerprint) {
        char calls[400], text[512];
        health_describe_mismatch(group, peer, ask->fingerprint, health->fingerprint[at], calls, sizeof calls);
        snprintf(text, sizeof text, "the ranks' calls differ at #%" PRIu64 " of group %s: %s", ask->sequence,
                 group->name, calls);
        group_fail(group, TUTTI_ERR_MISMATCH, text, true);
        return;
    }
    struct note here = {.type = NOTE_HERE,
                        .sequence = ask->sequence,
                        .latest = health->latest,
                        .latest_fingerprint = health->latest_fingerprint};
    const struct tutti_work *work;
    TAILQ_FOREACH(work, &group->works, group_link)
    if (work->op.sequence == ask->sequence) list_awaited(work, here.text, sizeof((struct peer_state *)0)->waits_for);
    note_send(group, peer, &here);
}

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
    if (note->type == NOTE_ASK && note->sequence > 0) {
        if (group->failed)
            health_tell(group); /* it missed the first telling */
        else
            answer(group, came->peer, note);
    } else if (note->type == NOTE_HERE) {
        struct peer_state *state = &group->health->peer[came->peer];
        *state = (struct peer_state){note->latest, note->latest_fingerprint, clock_now_ns(), ""};
        snprintf(state->waits_for, sizeof state->waits_for, "%s", note->text);
    } else if (note->type == NOTE_FAILED && !group->failed && note->status < 0) {
        group_told(group, note->status, note->text, note->sequence); /* and told on: not all know the first one */
    }
    free(came);
}

void health_notified(void *core, int32_t peer, const void *message, size_t bytes)
{
    struct tutti_group *group = core;
    if (group->size < 1 || peer < 0 || peer >= group->size || peer == group->rank) return;
    struct note_event *came = malloc(sizeof *came);
    if (came == NULL) return; /* notes are best effort */
    if (!note_parse(message, bytes, &came->note)) {
        free(came);
        return;
    }
    came->event.handle = handle_note;
    came->group = group;
    came->peer = peer;
    engine_post(group->engine, &came->event);
}

void health_missing(const struct tutti_work *work, int64_t now, char *text, size_t size)
{
    const struct tutti_group *group = work->group;
    bool *marked = awaited(work);
    size_t used = 0;
    text[0] = '\0';
    for (int peer = 0; marked != NULL && peer < group->size && used < size; peer++) {
        if (!marked[peer]) continue;
        const struct peer_state *state = &group->health->peer[peer];
        char where[260];
        if (work->point_to_point) {
            where[0] = '\0';
        } else if (state->heard_ns < work->start_ns) {
            snprintf(where, sizeof where, " (no answer)");
        } else if (state->latest >= work->op.sequence) {
            snprintf(where, sizeof where, " (is in it too%s%s)",
                     state->waits_for[0] != '\0' ? ", itself waiting for " : "", state->waits_for);
        } else if (state->latest == 0) {
            snprintf(where, sizeof where, " (has called nothing yet)");
        } else {
            char call[160];
            fingerprint_describe(state->fingerprint, call, sizeof call);
            snprintf(where, sizeof where, " (is at #%" PRIu64 " %s; answered %.1f s ago)", state->latest, call,
                     (double)(now - state->heard_ns) / 1e9);
        }
        used += (size_t)snprintf(text + used, size - used, "%srank %d%s", used > 0 ? ", " : "",
                                 group->global_ranks[peer], where);
    }
    if (used == 0)
        snprintf(text, size, "%s",
                 !work->started                ? "an earlier operation"
                 : work->op.kind == TUTTI_COPY ? "the device, to copy its tensors"
                                               : "no peer in particular");
    free(marked);
}
