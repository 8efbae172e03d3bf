/* The object collectives.  They exchange the sizes of byte strings first, then the strings as uneven lists. */
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include "base/error.h"
#include "base/sized.h"
#include "dispatch/coalesce.h"
#include "group/group_check.h"
#include "state/group_state.h"

/* Copies opts without async_op: these calls block. */
static int make_blocking(const tutti_opts *opts, size_t opts_bytes, tutti_opts *plain)
{
    tutti_opts copy;
    int status = SIZED_READ(tutti_opts, opts, opts_bytes, &copy);
    *plain = status == TUTTI_OK && opts != NULL ? *opts : (tutti_opts){0};
    plain->async_op = NULL;
    return status;
}

static int check_bytes(const char *what, const tutti_opts *opts, const void *data, size_t bytes, int *size, int *rank)
{
    struct tutti_group *group = group_for_call(opts->group);
    if (group == NULL) return TUTTI_ERR_INVALID_ARGUMENT;
    if (group->rank < 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s: this rank is not in group %s; only members may call this",
                         what, group->name);
    if (coalesce_is_open(group)) /* the second of its two steps needs the result of the first one */
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "%s cannot be coalesced; call it before coalesce_begin or after coalesce_end", what);
    if (data == NULL && bytes > 0)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "%s: data is NULL but bytes is %zu; pass the data", what, bytes);
    if (bytes > PTRDIFF_MAX) /* a converted negative number */
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "%s: bytes is %zu, more than memory can be; pass at most PTRDIFF_MAX", what, bytes);
    *size = group->size;
    *rank = group->rank;
    return TUTTI_OK;
}

static bool is_own_rank(const tutti_opts *opts, int root, int rank)
{
    return opts->group_rank ? root == rank : tutti_get_group_rank(opts->group, root) == rank;
}

static tutti_tensor make_tensor(const void *data, size_t bytes)
{
    return tutti_tensor_of(data, (int64_t)bytes, TUTTI_UINT8);
}

/* Allocates memory for each entry, and makes a tensor of it. */
static int allocate(const char *what, tutti_bytes *out, const int64_t *sizes, int n, tutti_tensor *tensors)
{
    for (int i = 0; i < n; i++) {
        out[i].bytes = (size_t)sizes[i];
        out[i].data = malloc(out[i].bytes > 0 ? out[i].bytes : 1);
        if (out[i].data == NULL)
            return error_set(TUTTI_ERR_NO_MEMORY, "%s: out of memory for %zu bytes", what, out[i].bytes);
        tensors[i] = make_tensor(out[i].data, out[i].bytes);
    }
    return TUTTI_OK;
}

/* Fails the group if the call fails after its first step: the other ranks are in the second step, or about to be, and
 * wait for this one.  Keeps the error message. */
static int give_up(const tutti_opts *opts, int status)
{
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", error_text());
    tutti_abort(opts->group, text);
    return error_set(status, "%s", text);
}

static int check_list(const char *what, const void *list, int n, int size)
{
    if (list != NULL && n == size) return TUTTI_OK;
    return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                     "%s: the list has %d entries and the group %d ranks; pass one entry per rank", what,
                     list == NULL ? 0 : n, size);
}

int tutti_all_gather_bytes_sized(tutti_bytes *out, int n, const void *data, size_t bytes, const tutti_opts *opts,
                                 size_t opts_bytes)
{
    tutti_opts plain;
    int size = 0, rank = 0, status = make_blocking(opts, opts_bytes, &plain);
    if (status != TUTTI_OK) return status;
    status = check_bytes("all_gather_bytes", &plain, data, bytes, &size, &rank);
    if (status == TUTTI_OK) status = check_list("all_gather_bytes", out, n, size);
    if (status != TUTTI_OK) return status;
    memset(out, 0, (size_t)n * sizeof *out);
    int64_t own = (int64_t)bytes, *sizes = calloc((size_t)n, sizeof *sizes);
    tutti_tensor *tensors = calloc((size_t)n, sizeof *tensors);
    status = sizes != NULL && tensors != NULL
                 ? TUTTI_OK
                 : error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a list of %d sizes", size);
    if (status == TUTTI_OK) status = tutti_all_gather_into_tensor(tutti_view(sizes, n), tutti_view(&own, 1), &plain);
    if (status == TUTTI_OK) {
        status = allocate("all_gather_bytes", out, sizes, n, tensors);
        if (status == TUTTI_OK) status = tutti_all_gather(tensors, n, make_tensor(data, bytes), &plain);
        if (status != TUTTI_OK) status = give_up(&plain, status);
    }
    if (status != TUTTI_OK) tutti_bytes_free(out, n);
    free(tensors);
    free(sizes);
    return status;
}

int tutti_gather_bytes_sized(tutti_bytes *out, int n, const void *data, size_t bytes, int root, const tutti_opts *opts,
                             size_t opts_bytes)
{
    tutti_opts plain;
    int size = 0, rank = 0, status = make_blocking(opts, opts_bytes, &plain);
    if (status != TUTTI_OK) return status;
    status = check_bytes("gather_bytes", &plain, data, bytes, &size, &rank);
    bool is_root = status == TUTTI_OK && is_own_rank(&plain, root, rank);
    if (status == TUTTI_OK && is_root) status = check_list("gather_bytes", out, n, size);
    if (status != TUTTI_OK) return status;
    int64_t own = (int64_t)bytes, *sizes = calloc((size_t)size, sizeof *sizes);
    tutti_tensor *tensors = calloc((size_t)size, sizeof *tensors);
    status = sizes != NULL && tensors != NULL
                 ? TUTTI_OK
                 : error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a list of %d sizes", size);
    if (is_root) memset(out, 0, (size_t)n * sizeof *out);
    if (status == TUTTI_OK)
        status = tutti_gather_into_tensor(tutti_view(sizes, size), tutti_view(&own, 1), root, &plain);
    if (status == TUTTI_OK) {
        if (is_root) status = allocate("gather_bytes", out, sizes, n, tensors);
        if (status == TUTTI_OK)
            status = tutti_gather(make_tensor(data, bytes), is_root ? tensors : NULL, is_root ? n : 0, root, &plain);
        if (status != TUTTI_OK) status = give_up(&plain, status);
    }
    if (status != TUTTI_OK && is_root) tutti_bytes_free(out, n);
    free(tensors);
    free(sizes);
    return status;
}

int tutti_broadcast_bytes_sized(tutti_bytes *inout, int root, const tutti_opts *opts, size_t opts_bytes)
{
    tutti_opts plain;
    int size = 0, rank = 0, status = make_blocking(opts, opts_bytes, &plain);
    if (status != TUTTI_OK) return status;
    if (inout == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "broadcast_bytes: inout is NULL; pass a tutti_bytes");
    status = check_bytes("broadcast_bytes", &plain, NULL, 0, &size, &rank);
    bool is_root = status == TUTTI_OK && is_own_rank(&plain, root, rank);
    if (is_root) status = check_bytes("broadcast_bytes", &plain, inout->data, inout->bytes, &size, &rank);
    if (status != TUTTI_OK) return status;
    if (!is_root) *inout = (tutti_bytes){0};
    int64_t bytes = (int64_t)inout->bytes;
    tutti_tensor tensor = make_tensor(inout->data, inout->bytes);
    status = tutti_broadcast(tutti_view(&bytes, 1), root, &plain);
    if (status == TUTTI_OK) {
        if (!is_root) status = allocate("broadcast_bytes", inout, &bytes, 1, &tensor);
        if (status == TUTTI_OK) status = tutti_broadcast(tensor, root, &plain);
        if (status != TUTTI_OK) status = give_up(&plain, status);
    }
    if (status != TUTTI_OK && !is_root) tutti_bytes_free(inout, 1);
    return status;
}

int tutti_scatter_bytes_sized(tutti_bytes *out, const tutti_bytes *in, int n, int root, const tutti_opts *opts,
                              size_t opts_bytes)
{
    tutti_opts plain;
    int size = 0, rank = 0, status = make_blocking(opts, opts_bytes, &plain);
    if (status != TUTTI_OK) return status;
    if (out == NULL)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "scatter_bytes: out is NULL; pass a tutti_bytes for the result");
    status = check_bytes("scatter_bytes", &plain, NULL, 0, &size, &rank);
    bool is_root = status == TUTTI_OK && is_own_rank(&plain, root, rank);
    if (status == TUTTI_OK && is_root) status = check_list("scatter_bytes", in, n, size);
    for (int i = 0; status == TUTTI_OK && is_root && i < n; i++) /* before any message is sent */
        status = check_bytes("scatter_bytes", &plain, in[i].data, in[i].bytes, &size, &rank);
    if (status != TUTTI_OK) return status;
    int64_t own = 0, *sizes = calloc((size_t)size, sizeof *sizes);
    tutti_tensor *tensors = calloc((size_t)size, sizeof *tensors), mine;
    status = sizes != NULL && tensors != NULL
                 ? TUTTI_OK
                 : error_set(TUTTI_ERR_NO_MEMORY, "out of memory for a list of %d sizes", size);
    for (int i = 0; status == TUTTI_OK && is_root && i < n; i++) {
        sizes[i] = (int64_t)in[i].bytes;
        tensors[i] = make_tensor(in[i].data, in[i].bytes);
    }
    memset(out, 0, sizeof *out);
    if (status == TUTTI_OK) status = tutti_scatter_tensor(tutti_view(&own, 1), tutti_view(sizes, size), root, &plain);
    if (status == TUTTI_OK) {
        status = allocate("scatter_bytes", out, &own, 1, &mine);
        if (status == TUTTI_OK) status = tutti_scatter(mine, is_root ? tensors : NULL, is_root ? n : 0, root, &plain);
        if (status != TUTTI_OK) status = give_up(&plain, status);
    }
    if (status != TUTTI_OK) tutti_bytes_free(out, 1);
    free(tensors);
    free(sizes);
    return status;
}
