/* A list is compared as text, a line per parameter, first by a hash of it.  Only if hashes differ does rank 0 send its
 * text to the others. */
#include "reducer_agree.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- failures ---------------------------------------------------------------------------------------------- */

/* A rank's status and its message, as sent.  A status is small, so that byte order does not matter for ranks of one
 * library. */
struct failure {
    int32_t status;
    char text[REDUCER_TEXT];
};

/* Copies the first failure from the ranks' messages and says which rank's it is. */
static int find_failure(const tutti_bytes *message, int n)
{
    for (int rank = 0; rank < n; rank++) {
        struct failure failure = {0};
        size_t bytes = message[rank].bytes < sizeof failure ? message[rank].bytes : sizeof failure;
        if (bytes < sizeof failure.status) continue;
        memcpy(&failure, message[rank].data, bytes);
        failure.text[REDUCER_TEXT - 1] = '\0';
        if (failure.status >= 0) continue;
        return tutti_set_error(failure.status, "reducer: rank %d: %s", rank, failure.text);
    }
    return tutti_set_error(TUTTI_ERR_MISMATCH, "reducer: a rank failed without a reason");
}

int reducer_exchange_failures(struct tutti_reducer *reducer, int status, const char *text)
{
    struct failure own = {.status = status};
    tutti_bytes *message = calloc((size_t)reducer->size, sizeof *message);
    tutti_opts opts = reducer_control_opts(reducer, NULL);
    if (status < 0) snprintf(own.text, sizeof own.text, "%s", text);
    if (message == NULL) {
        tutti_abort(reducer->group, "a reducer is out of memory");
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "reducer: out of memory for a list of %d messages", reducer->size);
    }
    int result = tutti_all_gather_bytes(message, reducer->size, &own, sizeof own.status + strlen(own.text), &opts);
    if (result == TUTTI_OK) result = find_failure(message, reducer->size);
    tutti_bytes_free(message, reducer->size);
    free(message);
    return result;
}

int reducer_agree(struct tutti_reducer *reducer, int status, const char *text)
{
    int32_t failed = status < 0;
    tutti_opts opts = reducer_control_opts(reducer, NULL);
    int result = tutti_all_reduce(tutti_view(&failed, 1), TUTTI_MAX, &opts);
    if (result != TUTTI_OK || failed == 0) return result;
    return reducer_exchange_failures(reducer, status, text);
}

/* ---- lists ------------------------------------------------------------------------------------------------- */

static void write_options(FILE *file, const tutti_reducer_opts *opts)
{
    fprintf(file,
            "options bucket_bytes %" PRId64 ", first_bucket_bytes %" PRId64
            ", sum %d, no_broadcast %d, find_unused %d, gradient_as_bucket_view %d, keep_order %d, move_views %d, "
            "join %d, divide_by_active %d, compress %s, error_feedback %d, hook %d with %d phases\n",
            opts->bucket_bytes, opts->first_bucket_bytes, opts->sum, opts->no_broadcast, opts->find_unused,
            opts->gradient_as_bucket_view, opts->keep_order, opts->move_views, opts->join, opts->divide_by_active,
            opts->compress != 0 ? tutti_dtype_name(opts->compress) : "none", opts->error_feedback, opts->hook != NULL,
            opts->hook_phases);
}

static void write_tensor(FILE *file, const char *what, tutti_tensor tensor)
{
    fprintf(file, "%s %s[%" PRId64 "]%s", what, tutti_dtype_name(tensor.dtype), tensor.numel,
            tensor.device.type == TUTTI_CPU ? "" : " on CUDA");
}

/* Writes a line for the options and one for each parameter.  The caller frees it.  Returns NULL without memory. */
static char *describe_list(const struct tutti_reducer *reducer)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL) return NULL;
    write_options(file, &reducer->opts);
    for (int i = 0; i < reducer->n; i++) {
        fprintf(file, "'%s' with ", reducer->parameter[i].name);
        write_tensor(file, "gradient", reducer->parameter[i].gradient);
        if (reducer->parameter[i].value.numel > 0) write_tensor(file, " and value", reducer->parameter[i].value);
        fputc('\n', file);
    }
    if (fclose(file) == 0) return text;
    free(text);
    return NULL;
}

/* FNV-1a. */
static uint64_t hash(const char *text)
{
    uint64_t value = 0xcbf29ce484222325u;
    for (; *text != '\0'; text++) value = (value ^ (unsigned char)*text) * 0x100000001b3u;
    return value;
}

/* Finds the first line in which two texts differ.  Returns its number, or -1 if they are alike. */
static int find_difference(const char **a, const char **b)
{
    for (int line = 0;; line++) {
        size_t n = strcspn(*a, "\n"), m = strcspn(*b, "\n");
        if (n != m || memcmp(*a, *b, n) != 0) return line;
        if ((*a)[n] == '\0' && (*b)[m] == '\0') return -1;
        if ((*a)[n] == '\0' || (*b)[m] == '\0') return line;
        *a += n + 1;
        *b += m + 1;
    }
}

/* Compares this rank's text with rank 0's and describes the first difference. */
static int compare(const char *first, const char *own, char *text, size_t capacity)
{
    int line = find_difference(&first, &own), n = (int)strcspn(first, "\n"), m = (int)strcspn(own, "\n");
    if (line < 0) return TUTTI_OK;
    if (line == 0)
        snprintf(text, capacity, "options differ: rank 0 has %.*s, this one has %.*s", n, first, m, own);
    else
        snprintf(text, capacity, "parameter %d differs: rank 0 has %.*s, this one has %.*s", line - 1, n > 0 ? n : 12,
                 n > 0 ? first : "no parameter", m > 0 ? m : 12, m > 0 ? own : "no parameter");
    return TUTTI_ERR_MISMATCH;
}

/* Sends rank 0's list to all ranks.  Returns the first difference on all of them. */
static int find_mismatch(struct tutti_reducer *reducer, char *list)
{
    char text[REDUCER_TEXT] = "";
    tutti_opts opts = reducer_control_opts(reducer, NULL);
    tutti_bytes first = {list, strlen(list) + 1};
    int status = tutti_broadcast_bytes(&first, 0, &opts);
    if (status != TUTTI_OK) return status;
    if (reducer->rank != 0 && first.bytes > 0) {
        ((char *)first.data)[first.bytes - 1] = '\0';
        status = compare(first.data, list, text, sizeof text);
    }
    if (reducer->rank != 0) tutti_bytes_free(&first, 1);
    return reducer_agree(reducer, status, text);
}

int reducer_agree_on_list(struct tutti_reducer *reducer, int status, const char *text)
{
    char *list = status == TUTTI_OK ? describe_list(reducer) : NULL;
    if (status == TUTTI_OK && list == NULL) {
        status = TUTTI_ERR_NO_MEMORY;
        text = "out of memory for the list of parameters";
    }
    uint64_t own = list != NULL ? hash(list) : 0, agreed[3] = {own, ~own, status < 0};
    tutti_opts opts = reducer_control_opts(reducer, NULL);
    int result = tutti_all_reduce(tutti_view(agreed, 3), TUTTI_MAX, &opts);
    if (result == TUTTI_OK && agreed[2] != 0)
        result = reducer_exchange_failures(reducer, status, text);
    else if (result == TUTTI_OK && agreed[0] != ~agreed[1])
        result = find_mismatch(reducer, list);
    free(list);
    return result;
}
