#include "group/creation_state.h"

#include <stdlib.h>

#include "group/entries.h"
#include "group/group_args.h"

enum { KEPT_MOST = 64 /* number of decided creations that are kept, to answer a rank that calls with another list */ };

bool creation_is_possible(const struct tutti_group *root)
{
    return root->size > 1 && entries_find_control(root) != NULL;
}

static struct creation_bucket *bucket_of(struct creation_list *list, uint64_t key)
{
    return &list->bucket[key % CREATION_BUCKETS]; /* a key is a hash */
}

struct creation *creation_find(struct tutti_group *root, uint64_t key)
{
    struct creation *creation;
    if (root->creations == NULL) return NULL;
    LIST_FOREACH(creation, bucket_of(root->creations, key), chain)
    {
        if (creation->key == key) return creation;
    }
    return NULL;
}

static void free_creation(struct creation *creation)
{
    struct creation_early *early;
    while ((early = STAILQ_FIRST(&creation->early)) != NULL) {
        STAILQ_REMOVE_HEAD(&creation->early, link);
        free(early);
    }
    if (creation->group != NULL && creation->group->creation == creation) creation->group->creation = NULL;
    free(creation->arrived);
    free(creation->whereabouts);
    LIST_REMOVE(creation, chain);
    TAILQ_REMOVE(&creation->root->creations->creations, creation, link);
    creation->root->creations->n--;
    free(creation);
}

/* Frees the oldest creations that no caller waits for. */
static void forget_oldest(struct creation_list *list)
{
    struct creation *creation, *next;
    for (creation = TAILQ_FIRST(&list->creations); creation != NULL && list->n > KEPT_MOST; creation = next) {
        next = TAILQ_NEXT(creation, link);
        bool used = creation->waiter != NULL || (creation->group != NULL && !creation->ended);
        if (creation->state == CREATION_DECIDED && !used) free_creation(creation);
    }
}

struct creation *creation_new(struct tutti_group *root, uint64_t key)
{
    if (root->creations == NULL) {
        root->creations = calloc(1, sizeof *root->creations);
        if (root->creations == NULL) return NULL;
        TAILQ_INIT(&root->creations->creations);
    }
    if (root->creations->n >= KEPT_MOST) forget_oldest(root->creations);
    struct creation *creation = calloc(1, sizeof *creation);
    if (creation == NULL) return NULL;
    creation->root = root;
    creation->key = key;
    STAILQ_INIT(&creation->early);
    TAILQ_INSERT_TAIL(&root->creations->creations, creation, link);
    LIST_INSERT_HEAD(bucket_of(root->creations, key), creation, chain);
    root->creations->n++;
    return creation;
}

void creation_end_split(struct creation *creation)
{
    creation->group = NULL;
    creation->choice = NULL;
    if (creation->status == TUTTI_OK) free_creation(creation);
}

bool creation_is_under_way(const struct tutti_group *group)
{
    return group->creation != NULL && !group->creation->ended;
}

const uint8_t *creation_offer(const struct tutti_group *group, int i)
{
    const struct creation *creation = group->creation;
    return creation_is_under_way(group) && (uint32_t)i < creation->n_offers ? creation->offer[i] : NULL;
}

const struct group_args *creation_args(const struct tutti_group *group)
{
    return &group->creation->args;
}

void creation_forget(struct tutti_group *group)
{
    struct creation *creation = group->creation;
    if (creation == NULL) return;
    creation->group = NULL;
    creation->state = CREATION_DECIDED;
    group->creation = NULL;
}

void creation_free_all(struct tutti_group *root)
{
    if (root->creations == NULL) return;
    while (!TAILQ_EMPTY(&root->creations->creations)) free_creation(TAILQ_FIRST(&root->creations->creations));
    free(root->creations);
    root->creations = NULL;
}
