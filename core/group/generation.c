#include "group/generation.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "group/launcher_members.h"

#define CURRENT "regroup/current"

enum { NUMBER_TEXT = 21, MEMBERS_MOST = 1 << 20, PUBLISH_TRIES = 100 };

struct generation *generation_new(int n, int n_skipped)
{
    struct generation *generation = calloc(1, sizeof *generation);
    if (generation == NULL) return NULL;
    generation->n = n;
    generation->n_skipped = n_skipped;
    generation->old_rank = malloc(((size_t)n + 1) * sizeof *generation->old_rank);
    generation->member = malloc(((size_t)n + 1) * sizeof *generation->member);
    generation->skipped = malloc(((size_t)n_skipped + 1) * sizeof *generation->skipped);
    if (generation->old_rank != NULL && generation->member != NULL && generation->skipped != NULL) return generation;
    generation_free(generation);
    return NULL;
}

void generation_free(struct generation *generation)
{
    if (generation == NULL) return;
    free(generation->old_rank);
    free(generation->member);
    free(generation->skipped);
    free(generation);
}

int generation_first(int n, tutti_store *store, tutti_store *launcher, struct generation **first)
{
    *first = generation_new(n, 0);
    if (*first == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a group of %d ranks", n);
    for (int i = 0; i < n; i++) {
        (*first)->old_rank[i] = -1;
        (*first)->member[i] = i;
    }
    (*first)->store = store;
    (*first)->launcher = launcher;
    return TUTTI_OK;
}

/* ---- in the store -------------------------------------------------------------------------------------------- */

/* Returns "NUMBER N MEMBER .. N SKIPPED ..", which the caller frees, or NULL. */
static char *print(const struct generation *generation)
{
    size_t size = (size_t)(generation->n + generation->n_skipped + 4) * NUMBER_TEXT;
    char *buffer = malloc(size);
    if (buffer == NULL) return NULL;
    struct text text = text_in(buffer, size);
    text_print(&text, "%" PRIu64 " %d", generation->number, generation->n);
    for (int i = 0; i < generation->n; i++) text_print(&text, " %" PRId64, generation->member[i]);
    text_print(&text, " %d", generation->n_skipped);
    for (int i = 0; i < generation->n_skipped; i++) text_print(&text, " %" PRId64, generation->skipped[i]);
    return buffer;
}

/* Reads a number and moves *at behind it.  Returns -1 if there is none. */
static int64_t read_number(const char **at)
{
    char *end = NULL;
    long long number = strtoll(*at, &end, 10);
    if (end == *at || number < 0) return -1;
    *at = end;
    return number;
}

static bool read_numbers(const char **at, int n, int64_t *numbers)
{
    for (int i = 0; i < n; i++)
        if ((numbers[i] = read_number(at)) < 0) return false;
    return true;
}

static struct generation *parse(const char *text)
{
    const char *at = text;
    int64_t number = read_number(&at), n = read_number(&at);
    if (number < 0 || n < 0 || n > MEMBERS_MOST) return NULL;
    const char *members = at;
    for (int64_t i = 0; i < n; i++)
        if (read_number(&at) < 0) return NULL;
    int64_t n_skipped = read_number(&at);
    if (n_skipped < 0 || n_skipped > MEMBERS_MOST) return NULL;
    struct generation *generation = generation_new((int)n, (int)n_skipped);
    if (generation == NULL) return NULL;
    generation->number = (uint64_t)number;
    for (int i = 0; i < (int)n; i++) generation->old_rank[i] = -1;
    if (read_numbers(&members, (int)n, generation->member) && read_numbers(&at, (int)n_skipped, generation->skipped))
        return generation;
    generation_free(generation);
    return NULL;
}

/* Reads the text in the store.  The caller frees *text, which is NULL if there is none.  *n gets its bytes: a foreign
 * text may hold a NUL. */
static int read_text(tutti_store *store, char **text, size_t *n)
{
    tutti_bytes bytes = {0};
    *text = NULL;
    *n = 0;
    int status = tutti_store_multi_get(store, (const char *[]){CURRENT}, 1, &bytes, 0);
    if (status != TUTTI_OK) return status == TUTTI_ERR_TIMEOUT ? TUTTI_OK : status;
    *text = calloc(1, bytes.bytes + 1);
    if (*text != NULL && bytes.bytes > 0) memcpy(*text, bytes.data, bytes.bytes);
    *n = bytes.bytes;
    tutti_bytes_free(&bytes, 1);
    return *text != NULL ? TUTTI_OK : error_set(TUTTI_ERR_NO_MEMORY, "out of memory for the members of a group");
}

int generation_read(tutti_store *store, struct generation **newest)
{
    char *text = NULL;
    size_t bytes = 0;
    *newest = NULL;
    int status = read_text(store, &text, &bytes);
    if (status != TUTTI_OK || text == NULL) return status;
    *newest = strlen(text) == bytes ? parse(text) : NULL;
    free(text);
    if (*newest != NULL) return TUTTI_OK;
    return error_set(TUTTI_ERR_STORE, "the members of the newest group in the store are malformed");
}

int generation_publish(const struct generation *generation)
{
    char *mine = print(generation), *theirs = NULL;
    size_t before = 0;
    int status = mine != NULL ? read_text(generation->store, &theirs, &before)
                              : error_set(TUTTI_ERR_NO_MEMORY, "out of memory for %d ranks", generation->n);
    for (int i = 0; i < PUBLISH_TRIES && status == TUTTI_OK; i++) { /* others may write at the same time */
        if (theirs != NULL && strtoull(theirs, NULL, 10) >= generation->number) break;
        status = tutti_store_compare_set(generation->store, CURRENT, theirs, before, mine, strlen(mine), NULL, 0, NULL);
        free(theirs);
        theirs = NULL;
        if (status == TUTTI_OK) status = read_text(generation->store, &theirs, &before);
    }
    free(mine);
    free(theirs);
    return status;
}

int generation_check_launcher(const struct generation *generation)
{
    struct launcher_members members = {0};
    int status = launcher_members_read(&members, generation->launcher);
    for (int rank = 0; status == TUTTI_OK && rank < generation->n; rank++)
        if (launcher_members_ended(&members, generation->member[rank]))
            status = error_set(TUTTI_ERR_PEER_LOST, "rank %d is lost: the launcher has seen its process end", rank);
    launcher_members_free(&members);
    return status;
}
