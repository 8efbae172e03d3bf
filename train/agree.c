#include "agree.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MOST = 1024 };

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

int agree_on_status(tutti_group *group, int64_t timeout_ms, int status)
{
    int rank = tutti_get_rank(group), size = tutti_get_world_size(group);
    tutti_opts opts = {.group = group, .timeout_ms = timeout_ms};
    struct failure failure = {.status = status};
    if (status != TUTTI_OK) snprintf(failure.text, sizeof failure.text, "%s", tutti_last_error());
    int32_t failed = status != TUTTI_OK ? size - rank : 0; /* the highest is that of the lowest rank */
    int result = tutti_all_reduce(tutti_tensor_of(&failed, 1, TUTTI_INT32), TUTTI_MAX, &opts);
    if (result == TUTTI_OK && failed == 0) return TUTTI_OK;
    if (result == TUTTI_OK && (failed < 0 || failed > size))
        return tutti_set_error(TUTTI_ERR_MISMATCH, "the ranks disagree on which of them failed");
    if (result == TUTTI_OK) result = spread(group, timeout_ms, size - failed, &failure);
    if (result != TUTTI_OK) return status != TUTTI_OK ? tutti_set_error(status, "%s", failure.text) : result;
    return tutti_set_error(failure.status, "rank %d: %s", size - failed, failure.text);
}

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

static int compare(const char *who, const char *first, const char *own)
{
    if (find_difference(&first, &own) < 0) return TUTTI_OK;
    int n = (int)strcspn(first, "\n"), m = (int)strcspn(own, "\n");
    return tutti_set_error(TUTTI_ERR_MISMATCH,
                           "%s: rank 0 has %.*s, but this rank has %.*s; pass the same on all ranks", who,
                           n > 0 ? n : 7, n > 0 ? first : "nothing", m > 0 ? m : 7, m > 0 ? own : "nothing");
}

int agree_on_text(tutti_group *group, int64_t timeout_ms, const char *who, int status, const char *text)
{
    tutti_opts opts = {.group = group, .timeout_ms = timeout_ms, .group_rank = true};
    status = agree_on_status(group, timeout_ms, status);
    if (status != TUTTI_OK) return status;
    bool is_root = tutti_get_rank(group) == 0;
    tutti_bytes first = {is_root ? (void *)(uintptr_t)text : NULL, is_root ? strlen(text) + 1 : 0};
    status = tutti_broadcast_bytes(&first, 0, &opts);
    if (status != TUTTI_OK) return status;
    if (!is_root && first.bytes > 0) {
        ((char *)first.data)[first.bytes - 1] = '\0';
        status = compare(who, first.data, text);
    }
    if (!is_root) tutti_bytes_free(&first, 1);
    return agree_on_status(group, timeout_ms, status);
}
