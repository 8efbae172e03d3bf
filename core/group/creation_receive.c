#include "group/creation_receive.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/creation_decide.h"
#include "group/group_fail.h"
#include "progress/work.h"

enum { EARLY_MOST = 4096 /* number of messages per group tree that are kept until this rank calls */ };

/* ---- text -------------------------------------------------------------------------------------------------- */

static struct tutti_group *find_group(struct tutti_group *root, uint64_t id)
{
    struct tutti_group *group;
    TAILQ_FOREACH(group, &root->tree, tree_link)
    {
        if (group->id == id && group->rank >= 0) return group;
    }
    return NULL;
}

/* Describes what this rank is doing, for a leader that waits for this rank. */
static void describe_whereabouts(struct tutti_group *root, uint64_t parent, char *text, size_t size)
{
    struct tutti_group *group = find_group(root, parent);
    char what[160];
    if (group == NULL || group->shut) {
        snprintf(text, size, "it has destroyed the parent of this group");
    } else if (!TAILQ_EMPTY(&group->works)) {
        work_describe(TAILQ_FIRST(&group->works), what, sizeof what);
        snprintf(text, size, "it is in %s", what);
    } else {
        snprintf(text, size, "it has made %" PRIu64 " groups of group %s and is in no call on it", group->called,
                 group->name);
    }
}

/* ---- answers ----------------------------------------------------------------------------------------------- */

/* Returns the group if it has been made.  A split makes none: its state has the parent, which must not fail. */
static struct tutti_group *find_made(const struct creation *creation)
{
    bool decided = creation->state == CREATION_DECIDED && creation->status == TUTTI_OK;
    return decided && !creation->list.splits ? creation->group : NULL;
}

/* Handles a list that differs from this rank's.  The group fails on all its members, even if it has been made. */
static void refuse_members(struct creation *creation, int peer, const struct creation_message *message, const char *why)
{
    char text[CREATION_TEXT];
    snprintf(text, sizeof text, "%s", why); /* copied, because why may point into the creation */
    creation_answer(creation->root, peer, message, TUTTI_ERR_MISMATCH, text);
    if (creation->state != CREATION_DECIDED)
        creation_decide(creation, TUTTI_ERR_MISMATCH, text, true);
    else if (find_made(creation) != NULL)
        creation_fail_made(creation, TUTTI_ERR_MISMATCH, text);
}

static bool is_member(const struct creation *creation, int peer)
{
    const struct tutti_group *group = creation->group;
    return group != NULL && peer >= 0 && peer < group->world && group->local_of[peer] >= 0;
}

static void handle_proposal(struct creation *creation, int peer, const struct creation_message *proposal)
{
    char text[CREATION_TEXT];
    if (creation_wire_describe_difference(&proposal->list, peer, &creation->list, creation->root->rank, text,
                                          sizeof text)) {
        refuse_members(creation, peer, proposal, text);
        return;
    }
    if (creation->state == CREATION_DECIDED && creation->status != TUTTI_OK) {
        creation_answer(creation->root, peer, proposal, creation->status, creation->text);
        return;
    }
    if (creation->state != CREATION_GATHERING || !is_member(creation, peer)) return;
    int rank = creation->group->local_of[peer];
    if (creation->arrived[rank]) return;
    creation->arrived[rank] = true;
    if (creation->choice != NULL) {
        creation->choice[2 * rank] = proposal->color;
        creation->choice[2 * rank + 1] = proposal->split_key;
    }
    if (++creation->n_arrived == creation->group->size - 1) creation_decide(creation, TUTTI_OK, "", true);
}

/* Copies one part of a split's colors and keys.  The parts arrive in order, without a gap.  The verdict has the last
 * one. */
static void handle_choices(struct creation *creation, int peer, const struct creation_message *part)
{
    const struct creation_members *list = &part->list;
    if (creation->state != CREATION_PROPOSED || peer != creation->leader || creation->choice == NULL) return;
    if (list->n > 2 * (uint32_t)creation->group->size || list->n - list->n_listed != creation->n_choices) return;
    memcpy(creation->choice + creation->n_choices, list->rank, list->n_listed * sizeof *list->rank);
    creation->n_choices = list->n;
}

/* Handles a member's failure. */
static void handle_failed(struct creation *creation, int peer, const struct creation_message *message)
{
    struct tutti_group *group = find_made(creation);
    if (!is_member(creation, peer) || message->status == TUTTI_OK) return;
    if (creation->state != CREATION_DECIDED)
        creation_decide(creation, message->status, message->text, true);
    else if (group != NULL && !group->failed)
        group_fail(group, message->status, message->text, true);
}

/* Handles a member's timeout.  Does nothing if the verdict has been sent. */
static void handle_withdraw(struct creation *creation, int peer, const struct creation_message *message)
{
    if (creation->state != CREATION_GATHERING || !is_member(creation, peer) || message->status == TUTTI_OK) return;
    if (message->status == TUTTI_ERR_TIMEOUT)
        creation_decide_late(creation);
    else
        creation_decide(creation, message->status, message->text, true);
}

static void handle_verdict(struct creation *creation, int peer, const struct creation_message *verdict)
{
    struct tutti_group *made = find_made(creation);
    struct creation_message failed;
    bool leads = peer == creation->leader;
    if (creation->state == CREATION_PROPOSED && (leads || verdict->status != TUTTI_OK)) {
        creation->n_offers = verdict->n_offers;
        memcpy(creation->offer, verdict->offer, sizeof creation->offer);
        handle_choices(creation, peer, verdict);
        uint32_t expected = creation->choice != NULL ? 2 * (uint32_t)creation->group->size : 0;
        if (verdict->status == TUTTI_OK && creation->choice != NULL && creation->n_choices != expected) {
            char text[CREATION_TEXT];
            snprintf(text, sizeof text, "%u of %u colors and keys have arrived", creation->n_choices, expected);
            creation_decide(creation, TUTTI_ERR_BACKEND, text, true);
        } else {
            creation_decide(creation, verdict->status, verdict->text, !leads);
        }
    } else if (creation->state == CREATION_GATHERING && verdict->status != TUTTI_OK) {
        creation_decide(creation, verdict->status, verdict->text, true);
    } else if (creation->state == CREATION_DECIDED && creation->status != TUTTI_OK && leads &&
               verdict->status == TUTTI_OK) {
        failed = *verdict; /* too late: this rank has given up */
        failed.type = CREATION_FAILED;
        failed.status = creation->status;
        failed.n_offers = 0;
        memcpy(failed.text, creation->text, sizeof failed.text);
        creation_send(creation->root, peer, &failed);
    } else if (verdict->status != TUTTI_OK && made != NULL && !made->failed) {
        creation_fail_made(creation, verdict->status, verdict->text);
    }
}

static void handle_ask(struct creation *creation, int peer)
{
    if (creation->state != CREATION_PROPOSED || creation->leader != peer) creation_send_proposal(creation, peer);
}

static void handle_whereabouts(struct creation *creation, int peer, const struct creation_message *message)
{
    if (creation->state != CREATION_GATHERING || creation->whereabouts == NULL || !is_member(creation, peer)) return;
    memcpy(creation->whereabouts[creation->group->local_of[peer]], message->text, sizeof message->text);
}

static void handle_known(struct creation *creation, int peer, const struct creation_message *message)
{
    switch ((enum creation_type)message->type) {
    case CREATION_PROPOSAL:
        handle_proposal(creation, peer, message);
        break;
    case CREATION_WITHDRAW:
        handle_withdraw(creation, peer, message);
        break;
    case CREATION_FAILED:
        handle_failed(creation, peer, message);
        break;
    case CREATION_VERDICT:
        handle_verdict(creation, peer, message);
        break;
    case CREATION_ASK:
        handle_ask(creation, peer);
        break;
    case CREATION_WHEREABOUTS:
        handle_whereabouts(creation, peer, message);
        break;
    case CREATION_CHOICES:
        handle_choices(creation, peer, message);
        break;
    }
}

/* ---- early messages -------------------------------------------------------------------------------------------- */

static void keep_early(struct tutti_group *root, struct creation *creation, int peer,
                       const struct creation_message *message)
{
    if (root->n_early >= EARLY_MOST) return; /* the peer asks again or times out */
    if (creation == NULL) creation = creation_new(root, message->key);
    struct creation_early *early = creation != NULL ? malloc(sizeof *early) : NULL;
    if (early == NULL) {
        event_memory_record_loss(&root->engine->event_memory);
        return;
    }
    early->peer = peer;
    early->message = *message;
    STAILQ_INSERT_TAIL(&creation->early, early, link);
    root->n_early++;
}

/* Handles failures before proposals, because a peer that has failed or given up may have sent its proposal before. */
static void handle_early_failures(struct creation *creation)
{
    struct creation_early *early;
    STAILQ_FOREACH(early, &creation->early, link)
    {
        if (early->message.type == CREATION_FAILED) handle_known(creation, early->peer, &early->message);
    }
}

void creation_receive_early(struct creation *creation)
{
    struct creation_early *early;
    handle_early_failures(creation);
    while ((early = STAILQ_FIRST(&creation->early)) != NULL) {
        STAILQ_REMOVE_HEAD(&creation->early, link);
        creation->root->n_early--;
        handle_known(creation, early->peer, &early->message);
        free(early);
    }
}

/* True if this rank called that number so long ago that its state has been freed. */
static bool is_past(struct tutti_group *root, const struct creation_message *message)
{
    const struct tutti_group *parent = find_group(root, message->parent);
    return message->number > 0 && parent != NULL && parent->called >= message->number;
}

/* Answers a withdrawing member if this leader has not called.  The answer describes what this rank is doing.  The group
 * will fail when this rank calls. */
static void refuse_late(struct tutti_group *root, struct creation *creation, int peer,
                        const struct creation_message *message)
{
    char whereabouts[160], text[CREATION_TEXT];
    struct creation_message failed = *message;
    describe_whereabouts(root, message->parent, whereabouts, sizeof whereabouts);
    snprintf(text, sizeof text, "rank %d has not made this group; %s", root->rank, whereabouts);
    creation_answer(root, peer, message, message->status, text);
    failed.type = CREATION_FAILED;
    keep_early(root, creation, peer, &failed);
}

static void handle_unknown(struct tutti_group *root, struct creation *creation, int peer,
                           const struct creation_message *message)
{
    char text[CREATION_TEXT];
    if (message->type == CREATION_ASK) {
        describe_whereabouts(root, message->parent, text, sizeof text);
        creation_answer(root, peer, message, TUTTI_OK, text);
    } else if (message->type == CREATION_WITHDRAW) {
        refuse_late(root, creation, peer, message);
    } else if (message->type != CREATION_WHEREABOUTS) {
        keep_early(root, creation, peer, message);
    }
}

static void handle_message(struct tutti_group *root, int peer, const struct creation_message *message)
{
    struct creation *creation = creation_find(root, message->key);
    char text[CREATION_TEXT];
    if (creation != NULL && creation->state != CREATION_EARLY) {
        handle_known(creation, peer, message);
    } else if (is_past(root, message)) {
        if (message->type != CREATION_PROPOSAL && message->type != CREATION_ASK) return;
        snprintf(text, sizeof text,
                 "rank %d called for group number %" PRIu64 " long before, with other ranks or as a non-member",
                 root->rank, message->number);
        struct creation_message proposal = *message;
        proposal.type = CREATION_PROPOSAL; /* a verdict answers also a rank that asked */
        creation_answer(root, peer, &proposal, TUTTI_ERR_MISMATCH, text);
    } else {
        handle_unknown(root, creation, peer, message);
    }
}

/* ---- receiving --------------------------------------------------------------------------------------------- */

struct creation_event {
    struct engine_event event; /* first member: see handle */
    struct tutti_group *root;
    int peer;
    struct creation_message message;
};
EVENT_CHECK_SIZE(struct creation_event);

static void handle(struct engine_event *event)
{
    struct creation_event *received = (struct creation_event *)event;
    if (!received->root->shut) handle_message(received->root, received->peer, &received->message);
    event_memory_give_back(&received->root->engine->event_memory, received);
}

void creation_receive_message(struct tutti_group *root, int peer, const void *message, size_t bytes)
{
    if (root != root->root || peer < 0 || peer >= root->size || peer == root->rank) return;
    struct creation_event *received = event_memory_take(&root->engine->event_memory, sizeof *received);
    if (received == NULL) return;
    if (!creation_wire_parse(message, bytes, &received->message)) {
        event_memory_give_back(&root->engine->event_memory, received);
        return;
    }
    received->event.handle = handle;
    received->root = root;
    received->peer = peer;
    engine_post(root->engine, &received->event);
}
