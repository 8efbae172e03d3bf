#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/backends.h"
#include "group/making_impl.h"
#include "group/subgroup.h"
#include "progress/engine_wait.h"
#include "progress/work.h"

enum {
    ASK_MS = 200, /* then a leader asks the missing members (or after a quarter of a shorter timeout) */
    ASK_AGAIN_MS = 500,
    ASK_MOST = 64,   /* ranks at a time */
    ANSWER_MS = 300, /* time for the leader's verdict after a member's timeout */
    PAST = 64        /* decided makings that are kept, to answer a rank that comes with another list */
};

/* ---- lookup ------------------------------------------------------------------------------------------------ */

struct making_family {
    struct making_list_head makings;
    int n;
};

bool making_is_possible(const struct tutti_group *root)
{
    return root->size > 1 && backends_find_tell(root) != NULL;
}

struct making *making_find(struct tutti_group *root, uint64_t key)
{
    struct making *making;
    if (root->makings == NULL) return NULL;
    TAILQ_FOREACH_REVERSE(making, &root->makings->makings, making_list_head, link)
    {
        if (making->key == key) return making;
    }
    return NULL;
}

static void free_making(struct making *making)
{
    struct making_early *early;
    while ((early = STAILQ_FIRST(&making->early)) != NULL) {
        STAILQ_REMOVE_HEAD(&making->early, link);
        free(early);
    }
    free(making->came);
    free(making->place);
    free(making->choice);
    TAILQ_REMOVE(&making->root->makings->makings, making, link);
    making->root->makings->n--;
    free(making);
}

/* Frees the oldest makings that nobody waits for. */
static void forget_oldest(struct making_family *family)
{
    struct making *making, *next;
    for (making = TAILQ_FIRST(&family->makings); making != NULL && family->n > PAST; making = next) {
        next = TAILQ_NEXT(making, link);
        bool pending = making->group != NULL && making->group->making == making;
        if (making->state == MAKING_DECIDED && !pending) free_making(making);
    }
}

struct making *making_new(struct tutti_group *root, uint64_t key)
{
    if (root->makings == NULL) {
        root->makings = calloc(1, sizeof *root->makings);
        if (root->makings == NULL) return NULL;
        TAILQ_INIT(&root->makings->makings);
    }
    if (root->makings->n >= PAST) forget_oldest(root->makings);
    struct making *making = calloc(1, sizeof *making);
    if (making == NULL) return NULL;
    making->root = root;
    making->key = key;
    STAILQ_INIT(&making->early);
    TAILQ_INSERT_TAIL(&root->makings->makings, making, link);
    root->makings->n++;
    return making;
}

/* ---- sending ------------------------------------------------------------------------------------------------ */

int making_tell(struct tutti_group *root, int peer, const struct making_message *message)
{
    uint8_t wire[MAKING_BYTES];
    const struct backend_entry *entry = backends_find_tell(root);
    size_t bytes = making_encode(message, wire);
    if (entry == NULL) return TUTTI_OK; /* the group tree is being closed */
    int status = entry->backend->tell(entry->state, peer, wire, bytes);
    if (status == TUTTI_ERR_NO_MEMORY)
        root->engine->event_memory.is_exhausted = true; /* the peer would wait for it in vain */
    return status;
}

static struct making_message message_of(const struct making *making, enum making_type type)
{
    return (struct making_message){
        .type = type, .key = making->key, .parent = making->parent, .number = making->number};
}

int making_send_card(struct making *making, int peer)
{
    struct making_message card = message_of(making, MAKING_CARD);
    card.list = making->list;
    card.color = making->args.color;
    card.split_key = making->args.split_key;
    return making_tell(making->root, peer, &card);
}

void making_answer(struct tutti_group *root, int peer, const struct making_message *to, int status, const char *text)
{
    struct making_message answer = {.type = to->type == MAKING_ASK ? MAKING_PLACE : MAKING_VERDICT,
                                    .status = status,
                                    .key = to->key,
                                    .parent = to->parent,
                                    .number = to->number};
    snprintf(answer.text, sizeof answer.text, "%s", text);
    making_tell(root, peer, &answer);
}

static void tell_failed(const struct making *making, int peer)
{
    struct making_message message = message_of(making, MAKING_FAILED);
    message.status = making->status;
    memcpy(message.text, making->text, sizeof message.text);
    making_tell(making->root, peer, &message);
}

static void tell_verdict(const struct making *making)
{
    struct making_message verdict = message_of(making, MAKING_VERDICT);
    verdict.status = making->status;
    verdict.n_offers = making->n_offers;
    memcpy(verdict.offer, making->offer, sizeof verdict.offer);
    memcpy(verdict.text, making->text, sizeof verdict.text);
    for (int i = 0; i < making->group->size; i++)
        if (i != making->group->rank) making_tell(making->root, making->group->global_ranks[i], &verdict);
}

/* Before the verdict, which comes behind them. */
static void tell_choices(const struct making *making, int peer)
{
    uint32_t n = 2 * (uint32_t)making->group->size;
    for (uint32_t at = 0; at < n; at += MAKING_RANKS) {
        struct making_message part = message_of(making, MAKING_CHOICES);
        part.list.told = n - at < MAKING_RANKS ? n - at : MAKING_RANKS;
        part.list.n = at + part.list.told;
        memcpy(part.list.rank, making->choice + at, part.list.told * sizeof *part.list.rank);
        making_tell(making->root, peer, &part);
    }
}

static void tell_all_choices(const struct making *making)
{
    for (int i = 0; i < making->group->size; i++)
        if (i != making->group->rank) tell_choices(making, making->group->global_ranks[i]);
}

void making_decide(struct making *making, int status, const char *text, bool tell)
{
    if (making->state == MAKING_DECIDED) return;
    bool leads = making->state == MAKING_GATHERING;
    if (leads && status == TUTTI_OK && making->choice != NULL) {
        tell_all_choices(making);
    } else if (leads && status == TUTTI_OK) {
        status = backends_offer(making->group, &making->args, making->offer, &making->n_offers);
        text = status == TUTTI_OK ? "" : error_text();
    }
    making->status = status;
    snprintf(making->text, sizeof making->text, "%s", text);
    making->state = MAKING_DECIDED;
    if (tell && leads) tell_verdict(making);
    if (tell && !leads && status != TUTTI_OK) tell_failed(making, making->leader);
    if (making->waiter == NULL) return;
    /* release: see work_ended */
    atomic_store_explicit(&making->waiter->ended, true, memory_order_release);
    if (making->waiter->awaited) engine_wake_waiters(making->root->engine);
}

/* ---- calling ----------------------------------------------------------------------------------------------- */

static void fill_list(struct making_list *list, const struct making_of *of)
{
    const int *ranks = of->ranks;
    int n = of->n;
    *list = (struct making_list){.hash = 1, .backend_hash = 1, .n = (uint32_t)n};
    list->told = n < MAKING_RANKS ? (uint32_t)n : MAKING_RANKS;
    for (int i = 0; i < n; i++) list->hash = subgroup_mix(list->hash, (uint64_t)ranks[i]);
    for (uint32_t i = 0; i < list->told; i++) list->rank[i] = ranks[i];
    backend_spec_print(of->names, list->backend, sizeof list->backend);
    list->backend_hash = subgroup_mix_text(list->backend_hash, list->backend);
    if (of->algorithm == NULL) return;
    size_t used = strlen(list->backend);
    snprintf(list->backend + used, sizeof list->backend - used, " and algorithm %s", of->algorithm);
    list->backend_hash = subgroup_mix_text(list->backend_hash, of->algorithm);
}

static int lowest(const int *ranks, int n)
{
    int least = ranks[0];
    for (int i = 1; i < n; i++)
        if (ranks[i] < least) least = ranks[i];
    return least;
}

/* Finds or makes the state of a group that this rank calls for. */
static struct making *call(struct tutti_group *root, uint64_t key, uint64_t parent, uint64_t number)
{
    struct making *making = making_find(root, key);
    if (making == NULL) making = making_new(root, key);
    if (making == NULL) return NULL;
    making->parent = parent;
    making->number = number;
    making->known = true;
    return making;
}

/* Decides PEER_LOST if a member is lost already. */
static void look_for_lost(struct making *making)
{
    const struct tutti_group *group = making->group;
    char text[MAKING_TEXT];
    for (int i = 0; i < group->size && making->state != MAKING_DECIDED; i++) {
        if (!making->root->lost[group->global_ranks[i]]) continue;
        snprintf(text, sizeof text, "rank %d is lost, or has left", group->global_ranks[i]);
        making_decide(making, TUTTI_ERR_PEER_LOST, text, true);
    }
}

static void hand_in(struct making *making, int ready)
{
    char text[MAKING_TEXT];
    snprintf(text, sizeof text, "rank %d: %.220s", making->group->global_ranks[making->group->rank],
             ready != TUTTI_OK ? error_text() : "");
    if (ready != TUTTI_OK) {
        making_decide(making, ready, text, true);
        return;
    }
    if (making->state != MAKING_HANDED) return;
    int told = making_send_card(making, making->leader);
    if (told != TUTTI_OK) making_decide(making, told, error_text(), false);
}

static int begin_locked(struct tutti_group *group, const struct group_args *args, int ready)
{
    struct tutti_group *root = group->root, *parent = args->parent;
    struct making *making = call(root, args->key, parent->id, args->number);
    if (making == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    bool leads = lowest(group->global_ranks, group->size) == root->rank;
    if (leads) making->came = calloc((size_t)group->size, sizeof *making->came);
    if (args->splits) making->choice = calloc(2 * (size_t)group->size, sizeof *making->choice);
    if ((leads && making->came == NULL) || (args->splits && making->choice == NULL))
        ready = error_set(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    if (making->choice != NULL) {
        making->choice[2 * group->rank] = args->color;
        making->choice[2 * group->rank + 1] = args->split_key;
    }
    making->group = group;
    group->making = making;
    making->leader = lowest(group->global_ranks, group->size);
    making->state = leads ? MAKING_GATHERING : MAKING_HANDED;
    making->begun_ns = clock_now_ns();
    making->args = *args;
    making->args.names = &group->names;
    making->args.parent = root; /* the parent may be freed before a pending group is used */
    making->args.global_ranks = group->global_ranks;
    fill_list(&making->list,
              &(struct making_of){group->global_ranks, group->size, &group->names, group->own_algorithm});
    making->list.splits = args->splits;
    if (args->number > parent->called) parent->called = args->number;
    hand_in(making, ready);
    look_for_lost(making);
    making_hear_early(making);
    return TUTTI_OK;
}

int making_begin(struct tutti_group *group, const struct group_args *args, int ready)
{
    engine_lock(group->engine);
    int status = begin_locked(group, args, ready);
    engine_unlock(group->engine);
    return status;
}

const int32_t *making_choices(const struct tutti_group *group)
{
    return group->making->choice;
}

const uint8_t *making_offer(const struct tutti_group *group, int i)
{
    const struct making *making = group->making;
    return making != NULL && (uint32_t)i < making->n_offers ? making->offer[i] : NULL;
}

const struct group_args *making_args(const struct tutti_group *group)
{
    return &group->making->args;
}

void making_abstain(struct tutti_group *parent, const struct making_of *of, uint64_t key, uint64_t number)
{
    if (!making_is_possible(parent->root)) return;
    engine_lock(parent->engine);
    struct making *making = call(parent->root, key, parent->id, number);
    if (number > parent->called) parent->called = number;
    if (making != NULL) { /* without memory a rank that counts on this one times out */
        fill_list(&making->list, of);
        making->state = MAKING_DECIDED;
        making->leader = -1;
        making_hear_early(making);
    }
    engine_unlock(parent->engine);
}

/* ---- waiting ----------------------------------------------------------------------------------------------- */

static void ask_missing(struct making *making)
{
    const struct tutti_group *group = making->group;
    struct making_message ask = message_of(making, MAKING_ASK);
    if (making->place == NULL) making->place = calloc((size_t)group->size, sizeof *making->place);
    if (making->place == NULL) return;
    for (int i = 0, asked = 0; i < group->size && asked < ASK_MOST && making->state == MAKING_GATHERING; i++) {
        if (making->came[i] || i == group->rank) continue;
        asked++;
        if (making_tell(making->root, group->global_ranks[i], &ask) != TUTTI_OK)
            making_decide(making, TUTTI_ERR_PEER_LOST, error_text(), true);
    }
}

/* Writes "rank 2 has not made this group; it is in broadcast #41 of group world". */
static void name_missing(const struct making *making, char *text, size_t size)
{
    const struct tutti_group *group = making->group;
    size_t used = 0;
    int missing = 0;
    for (int i = 0; i < group->size; i++) missing += i != group->rank && !making->came[i];
    text[0] = '\0';
    for (int i = 0; i < group->size && used < size; i++) {
        if (i == group->rank || making->came[i]) continue;
        const char *place = making->place != NULL ? making->place[i] : "";
        used += (size_t)snprintf(text + used, size - used, "%srank %d has not %s%s%s", used > 0 ? ", " : "",
                                 group->global_ranks[i], making->args.splits ? "called split_group" : "made this group",
                                 missing <= 2 ? "; " : "",
                                 missing > 2        ? ""
                                 : place[0] != '\0' ? place
                                                    : "it does not answer");
    }
}

void making_decide_late(struct making *making)
{
    char text[MAKING_TEXT];
    if (making->state == MAKING_GATHERING)
        name_missing(making, text, sizeof text);
    else
        snprintf(text, sizeof text, "the leader, rank %d, does not answer", making->leader);
    making_decide(making, TUTTI_ERR_TIMEOUT, text, true);
}

static void withdraw(struct making *making, int status)
{
    struct making_message message = message_of(making, MAKING_WITHDRAW);
    message.status = status;
    snprintf(message.text, sizeof message.text, "rank %d has timed out", making->root->rank);
    if (making_tell(making->root, making->leader, &message) != TUTTI_OK)
        making_decide(making, TUTTI_ERR_PEER_LOST, error_text(), false);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void wait_locked(struct making *making, int64_t limit_ms)
{
    int64_t deadline = clock_deadline_ns(limit_ms), first = limit_ms / 4 < ASK_MS ? limit_ms / 4 : ASK_MS;
    int64_t ask = clock_deadline_ns(first);
    bool withdrawn = false;
    while (making->state != MAKING_DECIDED) {
        bool leads = making->state == MAKING_GATHERING;
        if (engine_wait(making->root->engine, making->waiter, leads ? earlier(ask, deadline) : deadline)) continue;
        int64_t now = clock_now_ns();
        if (leads && now >= ask) {
            ask_missing(making);
            ask = clock_deadline_ns(ASK_AGAIN_MS);
        }
        if (now < deadline || making->state == MAKING_DECIDED) continue;
        if (leads || withdrawn) {
            making_decide_late(making);
        } else {
            withdraw(making, TUTTI_ERR_TIMEOUT);
            withdrawn = true;
            deadline = clock_deadline_ns(ANSWER_MS);
        }
    }
}

static int verdict_of(const struct making *making)
{
    const struct tutti_group *group = making->group;
    if (making->status == TUTTI_OK) return TUTTI_OK;
    double seconds = (double)(clock_now_ns() - making->begun_ns) / 1e9;
    if (making->args.splits)
        return error_set(making->status, "split_group of group %s failed after %.3f s: %s", group->name, seconds,
                         making->text);
    if (making->status == TUTTI_ERR_TIMEOUT)
        return error_set(TUTTI_ERR_TIMEOUT, "group %s was not made within %.3f s: %s", group->name,
                         (double)group->timeout_ms / 1000, making->text);
    return error_set(making->status, "making group %s failed after %.3f s: %s", group->name, seconds, making->text);
}

int making_wait(struct tutti_group *group)
{
    engine_lock(group->engine);
    struct making *making = group->making;
    making->waiter = making->state != MAKING_DECIDED ? work_take(group->engine) : NULL;
    if (making->waiter != NULL) {
        wait_locked(making, group->timeout_ms);
        work_release_locked(making->waiter);
        making->waiter = NULL;
    } else if (making->state != MAKING_DECIDED) {
        making_decide(making, TUTTI_ERR_NO_MEMORY, "no memory for a group", true);
    }
    int status = verdict_of(making);
    if (status != TUTTI_OK) making_end(group);
    engine_unlock(group->engine);
    return status;
}

/* ---- ending --------------------------------------------------------------------------------------------------- */

void making_end(struct tutti_group *group)
{
    group->making = NULL;
}

/* Tells all members over the first group, because they may not have opened this one yet. */
static void tell_all_failed(struct making *making, int status, const char *text)
{
    const struct tutti_group *group = making->group;
    making->status = status;
    snprintf(making->text, sizeof making->text, "%s", text);
    for (int i = 0; i < group->size; i++)
        if (i != group->rank) tell_failed(making, group->global_ranks[i]);
}

void making_fail_made(struct making *making, int status, const char *text)
{
    struct tutti_group *group = making->group;
    tell_all_failed(making, status, text);
    group_fail(group, status, making->text, true);
}

void making_give_up(struct tutti_group *group, int status, const char *text)
{
    struct making *making = group->making;
    if (making == NULL) return;
    if (making->state != MAKING_DECIDED) {
        making_decide(making, status, text, true);
    } else if (making->status == TUTTI_OK) {
        tell_all_failed(making, status, text);
    }
    making_end(group);
}

void making_forget(struct tutti_group *group)
{
    struct making *making;
    if (group->root == NULL || group->root->makings == NULL) return;
    TAILQ_FOREACH(making, &group->root->makings->makings, link)
    {
        if (making->group != group) continue;
        making->group = NULL;
        free(making->choice);
        making->choice = NULL;
        if (making->state != MAKING_DECIDED) making->state = MAKING_DECIDED;
    }
}

void making_free_all(struct tutti_group *root)
{
    if (root->makings == NULL) return;
    while (!TAILQ_EMPTY(&root->makings->makings)) free_making(TAILQ_FIRST(&root->makings->makings));
    free(root->makings);
    root->makings = NULL;
}

static bool concerns(const struct making *making, int peer, bool left)
{
    const struct tutti_group *group = making->group;
    if (making->state != MAKING_GATHERING && making->state != MAKING_HANDED) return false;
    if (group == NULL || group->local_of[peer] < 0) return false;
    if (!left || peer == making->leader) return true;
    return making->state == MAKING_GATHERING && !making->came[group->local_of[peer]];
}

void making_peer_lost(struct tutti_group *root, int peer, bool left, const char *text)
{
    struct making *making;
    if (root->makings == NULL) return;
    TAILQ_FOREACH(making, &root->makings->makings, link)
    {
        if (concerns(making, peer, left)) making_decide(making, TUTTI_ERR_PEER_LOST, text, true);
    }
}

void making_parent_failed(struct tutti_group *parent, int status, const char *text)
{
    struct making *making;
    if (parent->root == NULL || parent->root->makings == NULL) return;
    TAILQ_FOREACH(making, &parent->root->makings->makings, link)
    {
        bool waits = making->state == MAKING_GATHERING || making->state == MAKING_HANDED;
        if (waits && making->parent == parent->id && !making->args.survivors) making_decide(making, status, text, true);
    }
}
