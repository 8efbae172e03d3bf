/* Handles the messages of other ranks about a group that is being made. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/making_impl.h"
#include "progress/work.h"

enum { EARLY_MOST = 4096 /* messages of one group tree that are kept until this rank calls */ };

/* ---- text -------------------------------------------------------------------------------------------------- */

static struct tutti_group *find_group(struct tutti_group *root, uint64_t id)
{
    struct tutti_group *group;
    TAILQ_FOREACH(group, &root->family, family_link)
    {
        if (group->id == id && group->rank >= 0) return group;
    }
    return NULL;
}

/* Describes what this rank is doing, for a leader that waits for it. */
static void describe_place(struct tutti_group *root, uint64_t parent, char *text, size_t size)
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

/* Handles a list that differs from this rank's: the group fails on all its members, even if it has been made. */
static void refuse(struct making *making, int peer, const struct making_message *message, const char *why)
{
    struct tutti_group *group = making->group;
    char text[MAKING_TEXT];
    snprintf(text, sizeof text, "%s", why); /* `why` may lie in the making */
    making_answer(making->root, peer, message, TUTTI_ERR_MISMATCH, text);
    if (making->state != MAKING_DECIDED)
        making_decide(making, TUTTI_ERR_MISMATCH, text, true);
    else if (making->status == TUTTI_OK && group != NULL)
        making_fail_made(making, TUTTI_ERR_MISMATCH, text);
}

static bool is_member(const struct making *making, int peer)
{
    const struct tutti_group *group = making->group;
    return group != NULL && peer >= 0 && peer < group->world && group->local_of[peer] >= 0;
}

static void hear_card(struct making *making, int peer, const struct making_message *card)
{
    char text[MAKING_TEXT];
    if (making_differs(&card->list, peer, &making->list, making->root->rank, text, sizeof text)) {
        refuse(making, peer, card, text);
        return;
    }
    if (making->state == MAKING_DECIDED && making->status != TUTTI_OK) {
        making_answer(making->root, peer, card, making->status, making->text);
        return;
    }
    if (making->state != MAKING_GATHERING || !is_member(making, peer)) return;
    int rank = making->group->local_of[peer];
    if (making->came[rank]) return;
    making->came[rank] = true;
    if (making->choice != NULL) {
        making->choice[2 * rank] = card->color;
        making->choice[2 * rank + 1] = card->split_key;
    }
    if (++making->n_came == making->group->size - 1) making_decide(making, TUTTI_OK, "", true);
}

/* Copies one part of a split's colors and keys.  The parts arrive in order, without a gap. */
static void hear_choices(struct making *making, int peer, const struct making_message *part)
{
    const struct making_list *list = &part->list;
    if (making->state != MAKING_HANDED || peer != making->leader || making->choice == NULL) return;
    if (list->n > 2 * (uint32_t)making->group->size || list->n - list->told != making->n_choices) return;
    memcpy(making->choice + making->n_choices, list->rank, list->told * sizeof *list->rank);
    making->n_choices = list->n;
}

/* Handles a member's failure. */
static void hear_failed(struct making *making, int peer, const struct making_message *message)
{
    struct tutti_group *group = making->group;
    if (!is_member(making, peer) || message->status == TUTTI_OK) return;
    if (making->state != MAKING_DECIDED)
        making_decide(making, message->status, message->text, true);
    else if (making->status == TUTTI_OK && !group->failed)
        group_fail(group, message->status, message->text, true);
}

/* Handles a member's timeout.  A verdict that has been sent is on its way already. */
static void hear_withdraw(struct making *making, int peer, const struct making_message *message)
{
    if (making->state != MAKING_GATHERING || !is_member(making, peer) || message->status == TUTTI_OK) return;
    if (message->status == TUTTI_ERR_TIMEOUT)
        making_decide_late(making);
    else
        making_decide(making, message->status, message->text, true);
}

static void hear_verdict(struct making *making, int peer, const struct making_message *verdict)
{
    struct making_message failed;
    bool leads = peer == making->leader;
    if (making->state == MAKING_HANDED && (leads || verdict->status != TUTTI_OK)) {
        making->n_offers = verdict->n_offers;
        memcpy(making->offer, verdict->offer, sizeof making->offer);
        if (verdict->status == TUTTI_OK && making->choice != NULL &&
            making->n_choices != 2 * (uint32_t)making->group->size)
            making_decide(making, TUTTI_ERR_BACKEND, "the colors of some ranks have not come", true);
        else
            making_decide(making, verdict->status, verdict->text, !leads);
    } else if (making->state == MAKING_GATHERING && verdict->status != TUTTI_OK) {
        making_decide(making, verdict->status, verdict->text, true);
    } else if (making->state == MAKING_DECIDED && making->status != TUTTI_OK && leads && verdict->status == TUTTI_OK) {
        failed = *verdict; /* the verdict is too late: this rank has given up */
        failed.type = MAKING_FAILED;
        failed.status = making->status;
        failed.n_offers = 0;
        memcpy(failed.text, making->text, sizeof failed.text);
        making_tell(making->root, peer, &failed);
    } else if (making->state == MAKING_DECIDED && making->status == TUTTI_OK && verdict->status != TUTTI_OK &&
               making->group != NULL && !making->group->failed) {
        making_fail_made(making, verdict->status, verdict->text);
    }
}

static void hear_ask(struct making *making, int peer)
{
    if (making->state != MAKING_HANDED || making->leader != peer) making_send_card(making, peer);
}

static void hear_place(struct making *making, int peer, const struct making_message *message)
{
    if (making->state != MAKING_GATHERING || making->place == NULL || !is_member(making, peer)) return;
    memcpy(making->place[making->group->local_of[peer]], message->text, sizeof message->text);
}

static void hear_known(struct making *making, int peer, const struct making_message *message)
{
    switch ((enum making_type)message->type) {
    case MAKING_CARD:
        hear_card(making, peer, message);
        break;
    case MAKING_WITHDRAW:
        hear_withdraw(making, peer, message);
        break;
    case MAKING_FAILED:
        hear_failed(making, peer, message);
        break;
    case MAKING_VERDICT:
        hear_verdict(making, peer, message);
        break;
    case MAKING_ASK:
        hear_ask(making, peer);
        break;
    case MAKING_PLACE:
        hear_place(making, peer, message);
        break;
    case MAKING_CHOICES:
        hear_choices(making, peer, message);
        break;
    }
}

/* ---- before this rank has called ---------------------------------------------------------------------------- */

static void keep(struct tutti_group *root, struct making *making, int peer, const struct making_message *message)
{
    if (root->n_early >= EARLY_MOST) return; /* the peer asks again, or times out */
    if (making == NULL) making = making_new(root, message->key);
    struct making_early *early = making != NULL ? malloc(sizeof *early) : NULL;
    if (early == NULL) {
        root->engine->event_memory.is_exhausted = true;
        return;
    }
    early->peer = peer;
    early->message = *message;
    STAILQ_INSERT_TAIL(&making->early, early, link);
    root->n_early++;
}

/* Handles failures before cards: a peer that has failed or given up may have sent its card before. */
static void hear_early_failures(struct making *making)
{
    struct making_early *early;
    STAILQ_FOREACH(early, &making->early, link)
    {
        if (early->message.type == MAKING_FAILED) hear_known(making, early->peer, &early->message);
    }
}

void making_hear_early(struct making *making)
{
    struct making_early *early;
    hear_early_failures(making);
    while ((early = STAILQ_FIRST(&making->early)) != NULL) {
        STAILQ_REMOVE_HEAD(&making->early, link);
        making->root->n_early--;
        hear_known(making, early->peer, &early->message);
        free(early);
    }
}

/* True if this rank has called that number so long ago that its state is no longer kept. */
static bool is_past(struct tutti_group *root, const struct making_message *message)
{
    const struct tutti_group *parent = find_group(root, message->parent);
    return message->number > 0 && parent != NULL && parent->called >= message->number;
}

/* Answers a withdrawing member on behalf of a leader that has not called: it says where this rank is, and the group
 * fails when this rank calls. */
static void refuse_late(struct tutti_group *root, struct making *making, int peer, const struct making_message *message)
{
    char place[160], text[MAKING_TEXT];
    struct making_message failed = *message;
    describe_place(root, message->parent, place, sizeof place);
    snprintf(text, sizeof text, "rank %d has not made this group; %s", root->rank, place);
    making_answer(root, peer, message, message->status, text);
    failed.type = MAKING_FAILED;
    keep(root, making, peer, &failed);
}

static void hear_unknown(struct tutti_group *root, struct making *making, int peer,
                         const struct making_message *message)
{
    char text[MAKING_TEXT];
    if (message->type == MAKING_ASK) {
        describe_place(root, message->parent, text, sizeof text);
        making_answer(root, peer, message, TUTTI_OK, text);
    } else if (message->type == MAKING_WITHDRAW) {
        refuse_late(root, making, peer, message);
    } else if (message->type != MAKING_PLACE) {
        keep(root, making, peer, message);
    }
}

void making_hear(struct tutti_group *root, int peer, const struct making_message *message)
{
    struct making *making = making_find(root, message->key);
    char text[MAKING_TEXT];
    if (making != NULL && making->state != MAKING_EARLY) {
        hear_known(making, peer, message);
    } else if (is_past(root, message)) {
        if (message->type != MAKING_CARD && message->type != MAKING_ASK) return;
        snprintf(text, sizeof text,
                 "rank %d called for group number %" PRIu64 " long before, with other ranks or as no member",
                 root->rank, message->number);
        struct making_message card = *message;
        card.type = MAKING_CARD; /* it is a verdict for the rank that asked, too */
        making_answer(root, peer, &card, TUTTI_ERR_MISMATCH, text);
    } else {
        hear_unknown(root, making, peer, message);
    }
}

/* ---- receiving --------------------------------------------------------------------------------------------- */

struct making_event {
    struct engine_event event; /* first */
    struct tutti_group *root;
    int peer;
    struct making_message message;
};

static void handle(struct engine_event *event)
{
    struct making_event *came = (struct making_event *)event;
    if (!came->root->shut) making_hear(came->root, came->peer, &came->message);
    event_memory_give_back(&came->root->engine->event_memory, came);
}

void making_notified(struct tutti_group *root, int peer, const void *message, size_t bytes)
{
    if (root != root->root || peer < 0 || peer >= root->size || peer == root->rank) return;
    struct making_event *came = event_memory_take(&root->engine->event_memory, sizeof *came);
    if (came == NULL) return;
    if (!making_parse(message, bytes, &came->message)) {
        event_memory_give_back(&root->engine->event_memory, came);
        return;
    }
    came->event.handle = handle;
    came->root = root;
    came->peer = peer;
    engine_post(root->engine, &came->event);
}
