#include "group/creation.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "group/creation_decide.h"
#include "group/creation_receive.h"
#include "group/creation_state.h"
#include "group/group_args.h"
#include "group/group_id.h"
#include "progress/engine_wait.h"
#include "progress/work.h"

enum {
    ASK_MS = 200, /* time until a leader asks the stragglers (a quarter of the timeout if that is less) */
    ASK_AGAIN_MS = 500,
    ASK_MOST = 64,  /* number of ranks asked at a time */
    ANSWER_MS = 300 /* time for the leader's verdict after a member's timeout */
};

/* ---- calling ----------------------------------------------------------------------------------------------- */

static void fill_members(struct creation_members *list, const struct creation_terms *of)
{
    const int *ranks = of->ranks;
    int n = of->n;
    *list = (struct creation_members){.hash = 1, .backend_hash = 1, .n = (uint32_t)n};
    list->n_listed = n < CREATION_RANKS ? (uint32_t)n : CREATION_RANKS;
    for (int i = 0; i < n; i++) list->hash = group_id_mix(list->hash, (uint64_t)ranks[i]);
    for (uint32_t i = 0; i < list->n_listed; i++) list->rank[i] = ranks[i];
    backend_spec_print(of->names, list->backend, sizeof list->backend);
    list->backend_hash = group_id_mix_text(list->backend_hash, list->backend);
    if (of->algorithm == NULL) return;
    size_t used = strlen(list->backend);
    snprintf(list->backend + used, sizeof list->backend - used, " and algorithm %s", of->algorithm);
    list->backend_hash = group_id_mix_text(list->backend_hash, of->algorithm);
}

static int find_lowest(const int *ranks, int n)
{
    int least = ranks[0];
    for (int i = 1; i < n; i++)
        if (ranks[i] < least) least = ranks[i];
    return least;
}

/* Finds or makes the state of a group for this rank's call.  Returns NULL if out of memory.  group_count_use may have
 * been, too: then this group has the key of an earlier one. */
static struct creation *record_call(struct tutti_group *root, uint64_t key, uint64_t parent, uint64_t number)
{
    struct creation *creation = creation_find(root, key);
    if (creation == NULL) creation = creation_new(root, key);
    if (creation == NULL || creation->known) return NULL;
    creation->parent = parent;
    creation->number = number;
    creation->known = true;
    return creation;
}

/* Decides PEER_LOST if a member is lost already. */
static void check_lost(struct creation *creation)
{
    const struct tutti_group *group = creation->group;
    char text[CREATION_TEXT];
    for (int i = 0; i < group->size && creation->state != CREATION_DECIDED; i++) {
        if (!creation->root->lost[group->global_ranks[i]]) continue;
        snprintf(text, sizeof text, "rank %d is lost or has left", group->global_ranks[i]);
        creation_decide(creation, TUTTI_ERR_PEER_LOST, text, true);
    }
}

/* Decides the error for which this rank cannot make the group. */
static void refuse(struct creation *creation, int status)
{
    char text[CREATION_TEXT];
    snprintf(text, sizeof text, "rank %d: %.220s", creation->group->global_ranks[creation->group->rank], error_text());
    creation_decide(creation, status, text, true);
}

static void propose(struct creation *creation)
{
    if (creation->state != CREATION_PROPOSED) return;
    int sent = creation_send_proposal(creation, creation->leader);
    if (sent != TUTTI_OK) creation_decide(creation, sent, error_text(), false);
}

/* Begins this rank's part.  group: the one to make, or the one to split, whose ranks' choices go to `choice`. */
static int begin_locked(struct tutti_group *group, const struct group_args *args, int ready, int32_t *choice,
                        struct creation **out)
{
    struct tutti_group *root = group->root, *parent = args->parent;
    struct creation *creation = *out = record_call(root, args->key, parent->id, args->number);
    if (creation == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory to make group %s", group->name);
    creation->leader = find_lowest(group->global_ranks, group->size);
    bool leads = creation->leader == root->rank;
    if (leads) creation->arrived = calloc((size_t)group->size, sizeof *creation->arrived);
    if (leads && creation->arrived == NULL)
        ready = error_set(TUTTI_ERR_NO_MEMORY, "out of memory to make group %s", group->name);
    creation->choice = choice;
    creation->group = group;
    if (choice == NULL) group->creation = creation;
    creation->state = leads ? CREATION_GATHERING : CREATION_PROPOSED;
    creation->begun_ns = clock_now_ns();
    creation->args = *args;
    creation->args.names = &group->names;
    creation->args.parent = root; /* the parent may be freed before a pending group is used */
    creation->args.global_ranks = group->global_ranks;
    if (choice != NULL)
        creation->list.splits = 1; /* all its ranks know the others */
    else
        fill_members(&creation->list,
                     &(struct creation_terms){group->global_ranks, group->size, &group->names, group->own_algorithm});
    if (args->number > parent->called) parent->called = args->number;
    if (ready != TUTTI_OK) refuse(creation, ready);
    creation_receive_early(creation); /* first: a member may have left since it sent the verdict */
    propose(creation);
    check_lost(creation);
    return TUTTI_OK;
}

int creation_begin(struct tutti_group *group, const struct group_args *args, int ready)
{
    struct creation *creation;
    engine_lock(group->engine);
    int status = begin_locked(group, args, ready, NULL, &creation);
    engine_unlock(group->engine);
    return status;
}

void creation_abstain(struct tutti_group *parent, const struct creation_terms *of, uint64_t key, uint64_t number)
{
    if (!creation_is_possible(parent->root)) return;
    engine_lock(parent->engine);
    struct creation *creation = record_call(parent->root, key, parent->id, number);
    if (number > parent->called) parent->called = number;
    if (creation != NULL) { /* otherwise a rank that counts on this one times out */
        fill_members(&creation->list, of);
        creation->state = CREATION_DECIDED;
        creation->leader = -1;
        creation_receive_early(creation);
    }
    engine_unlock(parent->engine);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

static void ask_stragglers(struct creation *creation)
{
    const struct tutti_group *group = creation->group;
    struct creation_message ask = creation_message_of(creation, CREATION_ASK);
    if (creation->whereabouts == NULL)
        creation->whereabouts = calloc((size_t)group->size, sizeof *creation->whereabouts);
    if (creation->whereabouts == NULL) return;
    for (int i = 0, asked = 0; i < group->size && asked < ASK_MOST && creation->state == CREATION_GATHERING; i++) {
        if (creation->arrived[i] || i == group->rank) continue;
        asked++;
        if (creation_send(creation->root, group->global_ranks[i], &ask) != TUTTI_OK)
            creation_decide(creation, TUTTI_ERR_PEER_LOST, error_text(), true);
    }
}

static void withdraw(struct creation *creation, int status)
{
    struct creation_message message = creation_message_of(creation, CREATION_WITHDRAW);
    message.status = status;
    snprintf(message.text, sizeof message.text, "rank %d has timed out", creation->root->rank);
    if (creation_send(creation->root, creation->leader, &message) != TUTTI_OK)
        creation_decide(creation, TUTTI_ERR_PEER_LOST, error_text(), false);
}

static int64_t min_ns(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void wait_locked(struct creation *creation, int64_t limit_ms)
{
    int64_t deadline = clock_deadline_ns(limit_ms), first = limit_ms / 4 < ASK_MS ? limit_ms / 4 : ASK_MS;
    int64_t ask = clock_deadline_ns(first);
    bool withdrawn = false;
    while (creation->state != CREATION_DECIDED) {
        bool leads = creation->state == CREATION_GATHERING;
        if (engine_wait(creation->root->engine, creation->waiter, leads ? min_ns(ask, deadline) : deadline)) continue;
        int64_t now = clock_now_ns();
        if (leads && now >= ask) {
            ask_stragglers(creation);
            ask = clock_deadline_ns(ASK_AGAIN_MS);
        }
        if (now < deadline || creation->state == CREATION_DECIDED) continue;
        if (leads || withdrawn) {
            creation_decide_late(creation);
        } else {
            withdraw(creation, TUTTI_ERR_TIMEOUT);
            withdrawn = true;
            deadline = clock_deadline_ns(ANSWER_MS);
        }
    }
}

static int read_verdict(const struct creation *creation)
{
    const struct tutti_group *group = creation->group;
    if (creation->status == TUTTI_OK) return TUTTI_OK;
    double seconds = (double)(clock_now_ns() - creation->begun_ns) / 1e9;
    if (creation->list.splits)
        return error_set(creation->status, "split_group of group %s failed after %.3f s: %s", group->name, seconds,
                         creation->text);
    if (creation->status == TUTTI_ERR_TIMEOUT)
        return error_set(TUTTI_ERR_TIMEOUT, "group %s was not made within %.3f s: %s", group->name,
                         (double)group->timeout_ms / 1000, creation->text);
    return error_set(creation->status, "cannot make group %s, after %.3f s: %s", group->name, seconds, creation->text);
}

static int await_verdict(struct creation *creation)
{
    struct engine *engine = creation->root->engine;
    creation->waiter = creation->state != CREATION_DECIDED ? work_take(engine) : NULL;
    if (creation->waiter != NULL) {
        wait_locked(creation, creation->group->timeout_ms);
        work_release_locked(creation->waiter);
        creation->waiter = NULL;
    } else if (creation->state != CREATION_DECIDED) {
        creation_decide(creation, TUTTI_ERR_NO_MEMORY, "out of memory to wait for the group", true);
    }
    return read_verdict(creation);
}

int creation_wait(struct tutti_group *group)
{
    engine_lock(group->engine);
    int status = await_verdict(group->creation);
    if (status != TUTTI_OK) creation_end(group);
    engine_unlock(group->engine);
    return status;
}

int creation_split(struct tutti_group *parent, const struct group_args *args, int32_t *choice)
{
    struct creation *creation;
    choice[2 * parent->rank] = args->color;
    choice[2 * parent->rank + 1] = args->split_key;
    engine_lock(parent->engine);
    int status = begin_locked(parent, args, TUTTI_OK, choice, &creation);
    if (status == TUTTI_OK) status = await_verdict(creation);
    if (creation != NULL) creation_end_split(creation);
    engine_unlock(parent->engine);
    return status;
}

/* ---- ending ------------------------------------------------------------------------------------------------ */

void creation_end(struct tutti_group *group)
{
    if (group->creation != NULL) group->creation->ended = true;
}

void creation_give_up(struct tutti_group *group, int status, const char *text)
{
    struct creation *creation = group->creation;
    if (!creation_is_under_way(group)) return;
    if (creation->state != CREATION_DECIDED) {
        creation_decide(creation, status, text, true);
    } else if (creation->status == TUTTI_OK) {
        creation_send_failed(creation, status, text);
    }
    creation_end(group);
}

static bool is_concerned(const struct creation *creation, int peer, bool left)
{
    const struct tutti_group *group = creation->group;
    if (creation->state != CREATION_GATHERING && creation->state != CREATION_PROPOSED) return false;
    if (group == NULL || group->local_of[peer] < 0) return false;
    if (!left || peer == creation->leader) return true;
    return creation->state == CREATION_GATHERING && !creation->arrived[group->local_of[peer]];
}

void creation_peer_lost(struct tutti_group *root, int peer, bool left, const char *text)
{
    struct creation *creation;
    if (root->creations == NULL) return;
    TAILQ_FOREACH(creation, &root->creations->creations, link)
    {
        if (is_concerned(creation, peer, left)) creation_decide(creation, TUTTI_ERR_PEER_LOST, text, true);
    }
}

void creation_parent_failed(struct tutti_group *parent)
{
    const char *text = parent->failed_text != NULL ? parent->failed_text : "";
    struct creation *creation;
    if (parent->root == NULL || parent->root->creations == NULL) return;
    TAILQ_FOREACH(creation, &parent->root->creations->creations, link)
    {
        bool waits = creation->state == CREATION_GATHERING || creation->state == CREATION_PROPOSED;
        if (waits && creation->parent == parent->id && !creation->args.survivors)
            creation_decide(creation, TUTTI_ERR_ABORTED, text, true);
    }
}
