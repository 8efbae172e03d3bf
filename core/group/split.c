#include "group/split.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "group/creation.h"
#include "group/creation_state.h"
#include "group/group_args.h"
#include "group/subgroup.h"
#include "progress/engine.h"

/* ---- over control messages ----------------------------------------------------------------------------------- */

/* Makes a group that stands for the parent's ranks while they agree, like a group that is being made.  Nothing else
 * sees it. */
static struct tutti_group *new_meeting(struct tutti_group *parent)
{
    struct tutti_group *meeting = calloc(1, sizeof *meeting);
    if (meeting == NULL) return NULL;
    meeting->engine = parent->engine;
    meeting->root = parent->root;
    meeting->names = parent->names;
    meeting->rank = parent->rank;
    meeting->size = parent->size;
    meeting->world = parent->world;
    meeting->global_ranks = parent->global_ranks;
    meeting->local_of = parent->local_of;
    meeting->timeout_ms = parent->timeout_ms;
    snprintf(meeting->name, sizeof meeting->name, "%s", parent->name);
    return meeting;
}

static void end_meeting(struct tutti_group *meeting)
{
    engine_lock(meeting->engine);
    creation_forget(meeting);
    engine_unlock(meeting->engine);
    free(meeting);
}

static int exchange_by_messages(struct tutti_group *parent, const struct subgroup_id *id, int color, int key,
                                struct split_choice *all)
{
    struct tutti_group *meeting = new_meeting(parent);
    struct group_args args = {.parent = parent,
                              .names = &parent->names,
                              .key = id->key,
                              .number = id->number,
                              .splits = true,
                              .color = color,
                              .split_key = key};
    if (meeting == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory to split");
    int status = creation_begin(meeting, &args, TUTTI_OK);
    if (status == TUTTI_OK) status = creation_wait(meeting);
    const int32_t *choice = status == TUTTI_OK ? creation_choices(meeting) : NULL;
    for (int i = 0; choice != NULL && i < parent->size; i++)
        all[i] =
            (struct split_choice){.color = choice[2 * i], .key = choice[2 * i + 1], .rank = parent->global_ranks[i]};
    end_meeting(meeting);
    return status;
}

/* ---- through the store ---------------------------------------------------------------------------------------- */

enum { SPLIT_KEY = 64, CHOICE_MOST = 40 };

#define NOBODY_SPLITS "n" /* a verdict; another one has all choices */

static void split_key(uint64_t id, const char *what, char key[SPLIT_KEY])
{
    snprintf(key, SPLIT_KEY, "split/%016" PRIx64 "/%s", id, what);
}

/* Removes the previous split from the store.  All ranks have chosen anew, so all have read it. */
static void forget_last(struct tutti_group *parent, uint64_t id)
{
    static const char *const parts[] = {"choices", "came", "verdict"};
    char key[SPLIT_KEY];
    for (size_t i = 0; i < sizeof parts / sizeof *parts && parent->rank == 0 && parent->last_split != 0; i++) {
        split_key(parent->last_split, parts[i], key);
        tutti_store_delete(parent->store, key, NULL);
    }
    parent->last_split = id;
}

/* Lines of rank, color and key: one of each rank. */
static int read_choices(const struct tutti_group *parent, const char *text, struct split_choice *all)
{
    int n = 0;
    for (int i = 0; i < parent->size; i++) all[i].rank = -1;
    for (; *text != '\0'; n++) {
        struct split_choice choice;
        int rank, used = 0;
        bool whole = sscanf(text, "%d %d %d%n", &rank, &choice.color, &choice.key, &used) == 3 && text[used] == '\n';
        if (!whole || rank < 0 || rank >= parent->size || all[rank].rank >= 0)
            return error_set(TUTTI_ERR_STORE, "split_group: a choice in the store is \"%.*s\"",
                             (int)strcspn(text, "\n"), text);
        choice.rank = parent->global_ranks[rank];
        all[rank] = choice;
        text += used + 1;
    }
    if (n == parent->size) return TUTTI_OK;
    return error_set(TUTTI_ERR_STORE, "split_group: the store has the choices of %d of %d ranks", n, parent->size);
}

/* Whether the ranks split: the one that has all choices, or the first that has waited long enough for them, says so for
 * all.  So nobody splits with one that has given up, and nobody gives up when others have begun. */
static int settle(struct tutti_group *parent, uint64_t id, const char *mine, char *verdict, size_t room)
{
    char key[SPLIT_KEY];
    size_t bytes = 0;
    split_key(id, "verdict", key);
    int status = tutti_store_compare_set(parent->store, key, "", 0, mine, strlen(mine), verdict, room - 1, &bytes);
    verdict[status == TUTTI_OK && bytes < room ? bytes : 0] = '\0';
    return status;
}

/* The last to choose reads what all have chosen, and hands it out. */
static int hand_out(struct tutti_group *parent, uint64_t id, char *choices, char *verdict, size_t room)
{
    char key[SPLIT_KEY];
    size_t bytes = 0;
    split_key(id, "choices", key);
    int status = tutti_store_get(parent->store, key, choices, room - 1, &bytes, parent->timeout_ms);
    if (status != TUTTI_OK) return status;
    choices[bytes] = '\0';
    return settle(parent, id, choices, verdict, room);
}

static int await_verdict(struct tutti_group *parent, uint64_t id, char *verdict, size_t room)
{
    char key[SPLIT_KEY];
    size_t bytes = 0;
    int64_t came = 0;
    split_key(id, "verdict", key);
    int status = tutti_store_get(parent->store, key, verdict, room - 1, &bytes, parent->timeout_ms);
    verdict[status == TUTTI_OK ? bytes : 0] = '\0';
    if (status != TUTTI_ERR_TIMEOUT) return status;
    status = settle(parent, id, NOBODY_SPLITS, verdict, room);
    if (status != TUTTI_OK || strcmp(verdict, NOBODY_SPLITS) != 0) return status;
    split_key(id, "came", key);
    status = tutti_store_add(parent->store, key, 0, &came);
    if (status != TUTTI_OK) return status;
    return error_set(TUTTI_ERR_TIMEOUT, "split_group of group %s: %d of %d ranks came within %.3f s", parent->name,
                     (int)came, parent->size, (double)parent->timeout_ms / 1000);
}

static int choose(struct tutti_group *parent, uint64_t id, int color, int key, int64_t *came)
{
    char name[SPLIT_KEY], own[CHOICE_MOST];
    split_key(id, "choices", name);
    snprintf(own, sizeof own, "%d %d %d\n", parent->rank, color, key);
    int status = tutti_store_append(parent->store, name, own, strlen(own));
    split_key(id, "came", name);
    return status == TUTTI_OK ? tutti_store_add(parent->store, name, 1, came) : status;
}

/* A rank makes a few requests for one key each, however many ranks there are. */
static int exchange_by_store(struct tutti_group *parent, uint64_t id, int color, int key, struct split_choice *all)
{
    size_t room = (size_t)parent->size * CHOICE_MOST + CHOICE_MOST;
    char *choices = malloc(2 * room), *verdict = choices + room;
    int64_t came = 0;
    if (choices == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "no memory to split");
    int status = choose(parent, id, color, key, &came);
    if (status == TUTTI_OK && came == parent->size)
        status = hand_out(parent, id, choices, verdict, room);
    else if (status == TUTTI_OK)
        status = await_verdict(parent, id, verdict, room);
    if (status == TUTTI_OK && strcmp(verdict, NOBODY_SPLITS) == 0)
        status = error_set(TUTTI_ERR_TIMEOUT,
                           "split_group of group %s: the other ranks have given up waiting for this one (%d), or for "
                           "others",
                           parent->name, parent->global_ranks[parent->rank]);
    else if (status == TUTTI_OK)
        status = read_choices(parent, verdict, all);
    if (status == TUTTI_OK) forget_last(parent, id);
    free(choices);
    return status;
}

int split_exchange(struct tutti_group *parent, const struct subgroup_id *id, int color, int key,
                   struct split_choice *all)
{
    if (parent->size > 1 && creation_is_possible(parent->root))
        return exchange_by_messages(parent, id, color, key, all);
    return exchange_by_store(parent, id->id, color, key, all);
}
