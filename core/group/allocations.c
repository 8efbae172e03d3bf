#include "group/allocations.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *allocations;             /* root of a tsearch tree by address */
static const struct engine *released; /* by allocations_release: twalk has no argument for forget_tree */

static int by_address(const void *a, const void *b)
{
    const struct allocation *x = a, *y = b;
    return (x->memory > y->memory) - (x->memory < y->memory);
}

bool allocations_add(void *memory, size_t bytes, const struct engine *tree, const tutti_backend *backend)
{
    struct allocation *allocation = malloc(sizeof *allocation);
    if (allocation == NULL) return false;
    *allocation = (struct allocation){memory, bytes, tree, backend};
    pthread_mutex_lock(&mutex);
    bool noted = tsearch(allocation, &allocations, by_address) != NULL;
    pthread_mutex_unlock(&mutex);
    if (!noted) free(allocation);
    return noted;
}

bool allocations_find(void *memory, struct allocation *found)
{
    struct allocation asked = {.memory = memory};
    pthread_mutex_lock(&mutex);
    struct allocation **allocation = tfind(&asked, &allocations, by_address);
    if (allocation != NULL) *found = **allocation;
    pthread_mutex_unlock(&mutex);
    return allocation != NULL;
}

bool allocations_remove(void *memory)
{
    struct allocation asked = {.memory = memory};
    pthread_mutex_lock(&mutex);
    struct allocation **found = tfind(&asked, &allocations, by_address), *allocation = found != NULL ? *found : NULL;
    if (allocation != NULL) tdelete(&asked, &allocations, by_address);
    pthread_mutex_unlock(&mutex);
    free(allocation);
    return allocation != NULL;
}

static void forget_tree(const void *node, VISIT visit, int depth)
{
    struct allocation *allocation = *(struct allocation *const *)node;
    (void)depth;
    if ((visit == preorder || visit == leaf) && allocation->tree == released) allocation->tree = NULL;
}

void allocations_release(const struct engine *tree)
{
    pthread_mutex_lock(&mutex);
    released = tree;
    twalk(allocations, forget_tree);
    pthread_mutex_unlock(&mutex);
}
