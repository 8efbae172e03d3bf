#include "group/loans.h"

#include <pthread.h>
#include <search.h>
#include <stdlib.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *loans; /* a tree of them by address */

static int by_address(const void *a, const void *b)
{
    const struct loan *x = a, *y = b;
    return (x->memory > y->memory) - (x->memory < y->memory);
}

bool loans_add(void *memory, size_t bytes, const struct engine *family, const tutti_backend *backend)
{
    struct loan *loan = malloc(sizeof *loan);
    if (loan == NULL) return false;
    *loan = (struct loan){memory, bytes, family, backend};
    pthread_mutex_lock(&mutex);
    bool noted = tsearch(loan, &loans, by_address) != NULL;
    pthread_mutex_unlock(&mutex);
    if (!noted) free(loan);
    return noted;
}

bool loans_find(void *memory, struct loan *found)
{
    struct loan asked = {.memory = memory};
    pthread_mutex_lock(&mutex);
    struct loan **loan = tfind(&asked, &loans, by_address);
    if (loan != NULL) *found = **loan;
    pthread_mutex_unlock(&mutex);
    return loan != NULL;
}

bool loans_remove(void *memory)
{
    struct loan asked = {.memory = memory};
    pthread_mutex_lock(&mutex);
    struct loan **found = tfind(&asked, &loans, by_address), *loan = found != NULL ? *found : NULL;
    if (loan != NULL) tdelete(&asked, &loans, by_address);
    pthread_mutex_unlock(&mutex);
    free(loan);
    return loan != NULL;
}

static void leave_one(const void *node, VISIT visit, void *family)
{
    struct loan *loan = *(struct loan *const *)node;
    if ((visit == preorder || visit == leaf) && loan->family == family) loan->family = NULL;
}

void loans_release(const struct engine *family)
{
    pthread_mutex_lock(&mutex);
    twalk_r(loans, leave_one, (void *)(uintptr_t)family);
    pthread_mutex_unlock(&mutex);
}
