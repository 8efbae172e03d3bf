#include "group/creation_decide.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "group/backends.h"
#include "group/entries.h"
#include "group/group_fail.h"
#include "progress/work.h"

int creation_send(struct tutti_group *root, int peer, const struct creation_message *message)
{
    uint8_t wire[CREATION_BYTES];
    const struct backend_entry *entry = entries_find_control(root);
    size_t bytes = creation_wire_encode(message, wire);
    if (entry == NULL) return TUTTI_OK; /* the group tree is being closed */
    int status = entry->backend->tell(entry->state, peer, wire, bytes);
    if (status == TUTTI_ERR_NO_MEMORY)
        event_memory_record_loss(&root->engine->event_memory); /* otherwise the peer would wait forever */
    return status;
}

struct creation_message creation_message_of(const struct creation *creation, enum creation_type type)
{
    return (struct creation_message){
        .type = type, .key = creation->key, .parent = creation->parent, .number = creation->number};
}

int creation_send_proposal(struct creation *creation, int peer)
{
    struct creation_message proposal = creation_message_of(creation, CREATION_PROPOSAL);
    proposal.list = creation->list;
    proposal.color = creation->args.color;
    proposal.split_key = creation->args.split_key;
    return creation_send(creation->root, peer, &proposal);
}

void creation_answer(struct tutti_group *root, int peer, const struct creation_message *to, int status,
                     const char *text)
{
    struct creation_message answer = {.type = to->type == CREATION_ASK ? CREATION_WHEREABOUTS : CREATION_VERDICT,
                                      .status = status,
                                      .key = to->key,
                                      .parent = to->parent,
                                      .number = to->number};
    snprintf(answer.text, sizeof answer.text, "%s", text);
    creation_send(root, peer, &answer);
}

static void send_failed(const struct creation *creation, int peer)
{
    struct creation_message message = creation_message_of(creation, CREATION_FAILED);
    message.status = creation->status;
    memcpy(message.text, creation->text, sizeof message.text);
    creation_send(creation->root, peer, &message);
}

static void send_to_members(const struct creation *creation, const struct creation_message *message)
{
    for (int i = 0; i < creation->group->size; i++)
        if (i != creation->group->rank) creation_send(creation->root, creation->group->global_ranks[i], message);
}

/* Adds the choices of a split from index `at` on to a message.  Returns the number of those left. */
static uint32_t add_choices(const struct creation *creation, uint32_t at, struct creation_message *message)
{
    uint32_t n = 2 * (uint32_t)creation->group->size;
    message->list.n_listed = n - at < CREATION_RANKS ? n - at : CREATION_RANKS;
    message->list.n = at + message->list.n_listed;
    memcpy(message->list.rank, creation->choice + at, message->list.n_listed * sizeof *message->list.rank);
    return n - message->list.n;
}

/* Adds the last choices of a split to the verdict, and sends the earlier ones ahead of it. */
static void send_choices(const struct creation *creation, struct creation_message *verdict)
{
    for (uint32_t at = 0; add_choices(creation, at, verdict) > 0; at += CREATION_RANKS) {
        struct creation_message part = creation_message_of(creation, CREATION_CHOICES);
        part.list = verdict->list;
        send_to_members(creation, &part);
    }
}

static void send_verdict(const struct creation *creation)
{
    struct creation_message verdict = creation_message_of(creation, CREATION_VERDICT);
    verdict.status = creation->status;
    verdict.n_offers = creation->n_offers;
    memcpy(verdict.offer, creation->offer, sizeof verdict.offer);
    memcpy(verdict.text, creation->text, sizeof verdict.text);
    if (creation->choice != NULL && creation->status == TUTTI_OK) send_choices(creation, &verdict);
    send_to_members(creation, &verdict);
}

void creation_decide(struct creation *creation, int status, const char *text, bool notify)
{
    if (creation->state == CREATION_DECIDED) return;
    bool leads = creation->state == CREATION_GATHERING;
    if (leads && status == TUTTI_OK && creation->choice == NULL) {
        status = backends_offer(creation->group, &creation->args, creation->offer, &creation->n_offers);
        text = status == TUTTI_OK ? "" : error_text();
    }
    creation->status = status;
    text_copy(creation->text, sizeof creation->text, text);
    creation->state = CREATION_DECIDED;
    if (notify && leads) send_verdict(creation);
    if (notify && !leads && status != TUTTI_OK) send_failed(creation, creation->leader);
    if (creation->waiter == NULL) return;
    /* release: see work_ended */
    atomic_store_explicit(&creation->waiter->ended, true, memory_order_release);
    if (creation->waiter->awaited) engine_wake_waiters(creation->root->engine);
}

/* Writes "rank 2 has not made this group; it is in broadcast #41 of group world". */
static void name_stragglers(const struct creation *creation, char *text, size_t size)
{
    const struct tutti_group *group = creation->group;
    size_t used = 0;
    int absent = 0;
    for (int i = 0; i < group->size; i++) absent += i != group->rank && !creation->arrived[i];
    text[0] = '\0';
    for (int i = 0; i < group->size && used < size; i++) {
        if (i == group->rank || creation->arrived[i]) continue;
        const char *whereabouts = creation->whereabouts != NULL ? creation->whereabouts[i] : "";
        used += (size_t)snprintf(
            text + used, size - used, "%srank %d has not %s%s%s", used > 0 ? ", " : "", group->global_ranks[i],
            creation->list.splits ? "called split_group" : "made this group", absent <= 2 ? "; " : "",
            absent > 2               ? ""
            : whereabouts[0] != '\0' ? whereabouts
                                     : "it does not answer");
    }
}

void creation_decide_late(struct creation *creation)
{
    char text[CREATION_TEXT];
    if (creation->state == CREATION_GATHERING)
        name_stragglers(creation, text, sizeof text);
    else
        snprintf(text, sizeof text, "the leader, rank %d, does not answer", creation->leader);
    creation_decide(creation, TUTTI_ERR_TIMEOUT, text, true);
}

void creation_send_failed(struct creation *creation, int status, const char *text)
{
    const struct tutti_group *group = creation->group;
    creation->status = status;
    snprintf(creation->text, sizeof creation->text, "%s", text);
    for (int i = 0; i < group->size; i++)
        if (i != group->rank) send_failed(creation, group->global_ranks[i]);
}

void creation_fail_made(struct creation *creation, int status, const char *text)
{
    struct tutti_group *group = creation->group;
    creation_send_failed(creation, status, text);
    group_fail(group, status, creation->text, true);
}
