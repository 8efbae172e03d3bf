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

static int exchange_by_messages(struct tutti_group *parent, const struct subgroup_id *id, int color, int key,
                                struct split_choice *all)
{
    struct group_args args = {.parent = parent, .key = id->key, .number = id->number, .color = color, .split_key = key};
    int32_t *choice = malloc(2 * (size_t)parent->size * sizeof *choice);
    if (choice == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "split_group: out of memory for %d ranks", parent->size);
    int status = creation_split(parent, &args, choice);
    for (int i = 0; status == TUTTI_OK && i < parent->size; i++)
        all[i] =
            (struct split_choice){.color = choice[2 * i], .key = choice[2 * i + 1], .rank = parent->global_ranks[i]};
    free(choice);
    return status;
}

/* ---- through the store ---------------------------------------------------------------------------------------- */

enum { SPLIT_KEY = 64, CHOICE_MOST = 40 };

#define NOBODY_SPLITS "n" /* this verdict means that no rank splits; any other one has all choices */

static void write_key(uint64_t id, const char *what, char key[SPLIT_KEY])
{
    snprintf(key, SPLIT_KEY, "split/%016" PRIx64 "/%s", id, what);
}

/* Removes the previous split from the store.  All ranks have called again, so all have read it. */
static void forget_last(struct tutti_group *parent, uint64_t id)
{
    static const char *const parts[] = {"choices", "came", "verdict"};
    char key[SPLIT_KEY];
    for (size_t i = 0; i < sizeof parts / sizeof *parts && parent->rank == 0 && parent->last_split != 0; i++) {
        write_key(parent->last_split, parts[i], key);
        tutti_store_delete(parent->store, key, NULL);
    }
    parent->last_split = id;
}

/* Parses lines of rank, color and key, one per rank. */
static int read_choices(const struct tutti_group *parent, const char *text, struct split_choice *all)
{
    int n = 0;
    for (int i = 0; i < parent->size; i++) all[i].rank = -1;
    for (; *text != '\0'; n++) {
        struct split_choice choice;
        int rank, used = 0;
        bool whole = sscanf(text, "%d %d %d%n", &rank, &choice.color, &choice.key, &used) == 3 && text[used] == '\n';
        if (!whole || rank < 0 || rank >= parent->size || all[rank].rank >= 0)
            return error_set(TUTTI_ERR_STORE, "split_group: the store has \"%.*s\" instead of a rank's choice",
                             (int)strcspn(text, "\n"), text);
        choice.rank = parent->global_ranks[rank];
        all[rank] = choice;
        text += used + 1;
    }
    if (n == parent->size) return TUTTI_OK;
    return error_set(TUTTI_ERR_STORE, "split_group: the store has the choices of %d ranks instead of %d", n,
                     parent->size);
}

/* Publishes a verdict, unless there is one, and reads the one in the store.  The last rank proposes all choices, a rank
 * that has timed out proposes NOBODY_SPLITS.  So all ranks split, or none does. */
static int settle(struct tutti_group *parent, uint64_t id, const char *mine, char *verdict, size_t capacity)
{
    char key[SPLIT_KEY];
    size_t bytes = 0;
    write_key(id, "verdict", key);
    int status = tutti_store_compare_set(parent->store, key, "", 0, mine, strlen(mine), verdict, capacity - 1, &bytes);
    verdict[status == TUTTI_OK && bytes < capacity ? bytes : 0] = '\0';
    return status;
}

/* Runs on the last rank: reads all choices and publishes them as the verdict. */
static int publish_choices(struct tutti_group *parent, uint64_t id, char *choices, char *verdict, size_t capacity)
{
    char key[SPLIT_KEY];
    size_t bytes = 0;
    write_key(id, "choices", key);
    int status = tutti_store_get(parent->store, key, choices, capacity - 1, &bytes, parent->timeout_ms);
    if (status != TUTTI_OK) return status;
    choices[bytes] = '\0';
    return settle(parent, id, choices, verdict, capacity);
}

static int await_verdict(struct tutti_group *parent, uint64_t id, char *verdict, size_t capacity)
{
    char key[SPLIT_KEY];
    size_t bytes = 0;
    int64_t n_arrived = 0;
    write_key(id, "verdict", key);
    int status = tutti_store_get(parent->store, key, verdict, capacity - 1, &bytes, parent->timeout_ms);
    verdict[status == TUTTI_OK ? bytes : 0] = '\0';
    if (status != TUTTI_ERR_TIMEOUT) return status;
    status = settle(parent, id, NOBODY_SPLITS, verdict, capacity);
    if (status != TUTTI_OK || strcmp(verdict, NOBODY_SPLITS) != 0) return status;
    write_key(id, "came", key);
    status = tutti_store_add(parent->store, key, 0, &n_arrived);
    if (status != TUTTI_OK) return status;
    return error_set(TUTTI_ERR_TIMEOUT, "split_group of group %s: %d of %d ranks called it within %.3f s", parent->name,
                     (int)n_arrived, parent->size, (double)parent->timeout_ms / 1000);
}

static int choose(struct tutti_group *parent, uint64_t id, int color, int key, int64_t *n_arrived)
{
    char name[SPLIT_KEY], own[CHOICE_MOST];
    write_key(id, "choices", name);
    snprintf(own, sizeof own, "%d %d %d\n", parent->rank, color, key);
    int status = tutti_store_append(parent->store, name, own, strlen(own));
    write_key(id, "came", name);
    return status == TUTTI_OK ? tutti_store_add(parent->store, name, 1, n_arrived) : status;
}

/* Exchanges the choices through the store.  A rank makes a few requests for one key each, however many ranks there
 * are. */
static int exchange_by_store(struct tutti_group *parent, uint64_t id, int color, int key, struct split_choice *all)
{
    size_t capacity = (size_t)parent->size * CHOICE_MOST + CHOICE_MOST;
    char *choices = malloc(2 * capacity), *verdict = choices + capacity;
    int64_t n_arrived = 0;
    if (choices == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "split_group: out of memory for %d ranks", parent->size);
    int status = choose(parent, id, color, key, &n_arrived);
    if (status == TUTTI_OK && n_arrived == parent->size)
        status = publish_choices(parent, id, choices, verdict, capacity);
    else if (status == TUTTI_OK)
        status = await_verdict(parent, id, verdict, capacity);
    if (status == TUTTI_OK && strcmp(verdict, NOBODY_SPLITS) == 0)
        status = error_set(TUTTI_ERR_TIMEOUT,
                           "split_group of group %s: the other ranks have given up waiting for rank %d or for "
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
