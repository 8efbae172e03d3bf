#include "agree.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MOST = 1024, LINE_MOST = 400 };

/* ---- failures ---------------------------------------------------------------------------------------------- */

/* A rank's failure, as sent between ranks of one job. */
struct failure {
    int32_t status;
    char text[TEXT_MOST];
};

/* Replaces the failure of every rank by that of `root`. */
static int spread(tutti_group *group, int64_t timeout_ms, int root, struct failure *failure)
{
    tutti_opts opts = {.group = group, .timeout_ms = timeout_ms, .group_rank = true};
    tutti_tensor bytes = tutti_tensor_of(failure, sizeof *failure, TUTTI_UINT8);
    int result = tutti_broadcast(bytes, root, &opts);
    failure->text[TEXT_MOST - 1] = '\0';
    return result;
}

/* FNV-1a. */
static uint64_t hash(const char *text)
{
    uint64_t value = 0xcbf29ce484222325u;
    for (; text != NULL && *text != '\0'; text++) value = (value ^ (unsigned char)*text) * 0x100000001b3u;
    return value;
}

/* What all_reduce takes the largest of.  The largest complement is that of the smallest hash. */
struct vote {
    uint64_t failed; /* the group's size minus the rank, so that the lowest rank that fails wins; 0: OK */
    uint64_t hash, complement;
};

/* Agrees on a status, and says whether all ranks have the same text. */
static int vote(tutti_group *group, int64_t timeout_ms, int status, const char *text, bool *is_alike)
{
    int rank = tutti_get_rank(group), size = tutti_get_world_size(group);
    tutti_opts opts = {.group = group, .timeout_ms = timeout_ms};
    struct failure failure = {.status = status};
    struct vote own = {.failed = status != TUTTI_OK ? (uint64_t)(size - rank) : 0, .hash = hash(text)};
    own.complement = ~own.hash;
    if (status != TUTTI_OK) snprintf(failure.text, sizeof failure.text, "%s", tutti_last_error());
    int result = tutti_all_reduce(tutti_tensor_of(&own, sizeof own / sizeof own.hash, TUTTI_UINT64), TUTTI_MAX, &opts);
    *is_alike = own.hash == ~own.complement;
    if (result == TUTTI_OK && own.failed == 0) return TUTTI_OK;
    if (result == TUTTI_OK && own.failed > (uint64_t)size)
        return tutti_set_error(TUTTI_ERR_MISMATCH, "the ranks disagree on which of them failed");
    int failed = result == TUTTI_OK ? size - (int)own.failed : rank;
    if (result == TUTTI_OK) result = spread(group, timeout_ms, failed, &failure);
    if (result != TUTTI_OK) return status != TUTTI_OK ? tutti_set_error(status, "%s", failure.text) : result;
    if (failure.status >= 0) failure.status = TUTTI_ERR_MISMATCH; /* never sent, but a caller goes on with 0 */
    return tutti_set_error(failure.status, "rank %d: %s", failed, failure.text);
}

int agree_on_status(tutti_group *group, int64_t timeout_ms, int status)
{
    bool is_alike;
    return vote(group, timeout_ms, status, NULL, &is_alike);
}

/* ---- texts ------------------------------------------------------------------------------------------------- */

/* Finds the first line in which two texts differ, and moves both pointers to it.  Returns its number, or -1. */
static int find_difference(const char **a, const char **b)
{
    for (int line = 0;; line++) {
        size_t n = strcspn(*a, "\n"), m = strcspn(*b, "\n");
        if (n != m || memcmp(*a, *b, n) != 0) return line;
        if ((*a)[n] == '\0' || (*b)[m] == '\0') return (*a)[n] == (*b)[m] ? -1 : line;
        *a += n + 1;
        *b += m + 1;
    }
}

/* Copies what an error message can hold of a line, twice. */
static void copy_line(char line[LINE_MOST], const char *text)
{
    snprintf(line, LINE_MOST, "%.*s", (int)strcspn(text, "\n"), text);
}

static int compare(const char *first, const char *own, const char *who, agree_refuse refuse)
{
    char expected[LINE_MOST], found[LINE_MOST];
    int number = find_difference(&first, &own);
    if (number < 0) return TUTTI_OK;
    copy_line(expected, first);
    copy_line(found, own);
    return refuse(who, number, expected, found);
}

int agree_on_lines(tutti_group *group, int64_t timeout_ms, const char *who, int status, const char *text,
                   agree_refuse refuse)
{
    tutti_opts opts = {.group = group, .timeout_ms = timeout_ms, .group_rank = true};
    bool is_root = tutti_get_rank(group) == 0, is_alike;
    status = vote(group, timeout_ms, status, text, &is_alike);
    if (status != TUTTI_OK || is_alike) return status;
    tutti_bytes first = {is_root ? (void *)(uintptr_t)text : NULL, is_root ? strlen(text) + 1 : 0};
    status = tutti_broadcast_bytes(&first, 0, &opts);
    if (status != TUTTI_OK) return status;
    if (!is_root && first.bytes > 0) {
        ((char *)first.data)[first.bytes - 1] = '\0';
        status = compare(first.data, text, who, refuse);
    }
    if (!is_root) tutti_bytes_free(&first, 1);
    return agree_on_status(group, timeout_ms, status);
}

/* Refuses a line that any call may have. */
static int refuse_line(const char *who, int number, const char *first, const char *own)
{
    (void)number;
    return tutti_set_error(TUTTI_ERR_MISMATCH, "%s: rank 0 has %s, but this rank has %s; pass the same on all ranks",
                           who, *first != '\0' ? first : "nothing", *own != '\0' ? own : "nothing");
}

int agree_on_text(tutti_group *group, int64_t timeout_ms, const char *who, int status, const char *text)
{
    return agree_on_lines(group, timeout_ms, who, status, text, refuse_line);
}
