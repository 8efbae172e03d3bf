/* A bucket takes parameters of its dtype and device until it is full, and buckets are numbered in the order in which
 * their last parameters are reported.  All buckets are in one block of memory, which is large enough for any order, so
 * that rebuilding allocates nothing and cannot fail on one rank alone. */
#include "reducer_layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "reducer_residual.h"
#include "reducer_scheme.h"

enum { ALIGNMENT = 64, KEYS_MOST = 64 };

static int64_t align(int64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* ---- assignment -------------------------------------------------------------------------------------------- */

/* The bucket that is being filled with the gradients of a dtype and device. */
struct key {
    tutti_dtype dtype;
    tutti_device device;
    int bucket; /* -1: the next parameter opens one */
    bool is_later;
};

/* The index of a CPU device has no meaning. */
static bool is_key_of(const struct key *key, tutti_tensor gradient)
{
    return key->dtype == gradient.dtype && key->device.type == gradient.device.type &&
           (key->device.type == TUTTI_CPU || key->device.index == gradient.device.index);
}

/* Returns the gradient's key, or NULL if it would be one too many. */
static struct key *find_key(struct key *keys, int *n, tutti_tensor gradient)
{
    for (int i = 0; i < *n; i++)
        if (is_key_of(&keys[i], gradient)) return &keys[i];
    if (*n == KEYS_MOST) return NULL;
    keys[*n] = (struct key){gradient.dtype, gradient.device, -1, false};
    return &keys[(*n)++];
}

static int check_keys(const struct tutti_reducer *reducer)
{
    struct key keys[KEYS_MOST];
    for (int i = 0, n = 0; i < reducer->n; i++)
        if (find_key(keys, &n, reducer->parameter[i].gradient) == NULL)
            return tutti_set_error(
                TUTTI_ERR_INVALID_ARGUMENT,
                "gradient '%s' needs a bucket of its own; a reducer takes %d kinds of dtype and device",
                reducer->parameter[i].name, KEYS_MOST);
    return TUTTI_OK;
}

/* Appends a parameter to the open bucket of its key, and closes the bucket if it is full. */
static void append(struct tutti_reducer *reducer, struct key *key, struct parameter *parameter)
{
    if (key->bucket < 0) {
        key->bucket = reducer->buckets++;
        reducer->bucket[key->bucket] = (struct bucket){.scheme = scheme_of(reducer, parameter->gradient)};
        reducer->bucket[key->bucket].view.tensor = (tutti_tensor){NULL, 0, key->dtype, key->device};
    }
    tutti_bucket *view = &reducer->bucket[key->bucket].view;
    parameter->bucket = key->bucket;
    parameter->offset = view->tensor.numel;
    view->tensor.numel += parameter->gradient.numel;
    view->n++;
    int64_t limit = key->is_later ? reducer->opts.bucket_bytes : reducer->opts.first_bucket_bytes;
    if (reducer_tensor_bytes(view->tensor) < limit) return;
    key->is_later = true;
    key->bucket = -1;
}

/* Numbers the buckets by the position of their last parameter, and lists the parameters of each. */
static void number_buckets(struct tutti_reducer *reducer, const int32_t *order)
{
    int first = 0, next = 0, *left = reducer->members; /* reused below */
    struct bucket *sorted = reducer->bucket + reducer->buckets;
    for (int b = 0; b < reducer->buckets; b++) left[b] = reducer->bucket[b].view.n;
    for (int at = 0; at < reducer->n; at++) {
        int b = reducer->parameter[order[at]].bucket;
        if (--left[b] > 0) continue;
        sorted[next] = reducer->bucket[b];
        reducer->bucket[b].view.index = next++;
    }
    for (int i = 0; i < reducer->n; i++)
        reducer->parameter[i].bucket = reducer->bucket[reducer->parameter[i].bucket].view.index;
    memcpy(reducer->bucket, sorted, (size_t)next * sizeof *sorted);
    for (int b = 0; b < next; b++) {
        tutti_bucket *view = &reducer->bucket[b].view;
        view->parameter = reducer->members + first;
        view->offset = reducer->offsets + first;
        first += view->n;
        view->n = 0;
    }
    for (int at = 0; at < reducer->n; at++) {
        const struct parameter *parameter = &reducer->parameter[order[at]];
        tutti_bucket *view = &reducer->bucket[parameter->bucket].view;
        reducer->members[view->parameter - reducer->members + view->n] = order[at];
        reducer->offsets[view->offset - reducer->offsets + view->n++] = parameter->offset;
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------ */

/* Copies the contents of all views to spare memory, one after another in the order of the list, or from there. */
static void copy_views(struct tutti_reducer *reducer, bool back)
{
    char *at = reducer->spare;
    for (int i = 0; i < reducer->n && at != NULL; i++) {
        tutti_tensor gradient = reducer->parameter[i].gradient;
        size_t bytes = (size_t)reducer_tensor_bytes(gradient);
        if (bytes > 0) memcpy(back ? gradient.data : at, back ? at : gradient.data, bytes);
        at += bytes;
    }
}

static void place_buckets(struct tutti_reducer *reducer)
{
    char *memory = reducer->memory, *wire = reducer->wire_memory;
    for (int b = 0; b < reducer->buckets; b++) {
        struct bucket *bucket = &reducer->bucket[b];
        tutti_tensor tensor = bucket->view.tensor;
        if (scheme_needs_bucket(reducer, bucket->scheme)) {
            bucket->view.tensor.data = memory;
            memory += align(reducer_tensor_bytes(tensor));
        }
        bucket->wire = bucket->view.tensor;
        tutti_tensor compressed = scheme_wire(reducer, bucket->scheme, tensor.numel, wire);
        if (compressed.numel == 0) continue;
        bucket->wire = compressed;
        wire += align(reducer_tensor_bytes(compressed));
    }
}

void reducer_layout_assign(struct tutti_reducer *reducer, const int32_t *order)
{
    struct key keys[KEYS_MOST];
    int n = 0;
    if (reducer->generation > 0 && reducer_has_views(reducer)) copy_views(reducer, false);
    reducer->buckets = 0;
    for (int at = 0; at < reducer->n; at++) {
        struct parameter *parameter = &reducer->parameter[order[at]];
        append(reducer, find_key(keys, &n, parameter->gradient), parameter);
    }
    number_buckets(reducer, order);
    place_buckets(reducer);
    for (int b = 0; b < reducer->buckets; b++) {
        tutti_bucket *view = &reducer->bucket[b].view;
        reducer->bucket[b].pending = view->n;
        view->index = b;
        view->n_buckets = reducer->buckets;
        view->generation = reducer->generation;
        view->group = reducer->group;
        view->timeout_ms = reducer->opts.timeout_ms;
    }
    for (int i = 0; i < reducer->n && reducer_has_views(reducer); i++) {
        struct parameter *parameter = &reducer->parameter[i];
        tutti_tensor tensor = reducer->bucket[parameter->bucket].view.tensor;
        parameter->gradient.data = reducer_part(tensor, parameter->offset, 0).data;
    }
    if (reducer->generation > 0 && reducer_has_views(reducer)) copy_views(reducer, true);
}

/* Returns how many buckets there are at most, in any order: all but one per key are full. */
static int64_t most_buckets(const struct tutti_reducer *reducer, int64_t bytes)
{
    const tutti_reducer_opts *opts = &reducer->opts;
    int64_t limit = opts->bucket_bytes < opts->first_bucket_bytes ? opts->bucket_bytes : opts->first_bucket_bytes;
    int64_t most = bytes / limit + KEYS_MOST;
    return most < reducer->n ? most : reducer->n;
}

/* Sums what buckets need in any order.  False if it exceeds all memory. */
static bool measure(const struct tutti_reducer *reducer, int64_t *memory, int64_t *wire)
{
    int64_t total = 0;
    *memory = *wire = 0;
    for (int i = 0; i < reducer->n; i++) {
        tutti_tensor gradient = reducer->parameter[i].gradient;
        const struct scheme *scheme = scheme_of(reducer, gradient);
        int64_t bytes;
        if (__builtin_mul_overflow(gradient.numel, tutti_dtype_bytes(gradient.dtype), &bytes) ||
            __builtin_add_overflow(total, bytes, &total) || total > INT64_MAX / 16)
            return false;
        if (scheme_needs_bucket(reducer, scheme)) *memory += bytes;
        *wire += scheme_wire_bytes_of_part(scheme, gradient.numel);
    }
    int64_t buckets = most_buckets(reducer, total);
    *memory += *memory > 0 ? buckets * ALIGNMENT : 0;
    *wire += *wire > 0 ? buckets * (ALIGNMENT + scheme_wire_padding(reducer)) : 0;
    return true;
}

static int refuse_memory(int status, int64_t bytes)
{
    char cause[REDUCER_TEXT];
    snprintf(cause, sizeof cause, "%s", status == TUTTI_ERR_NO_MEMORY ? "out of memory" : tutti_last_error());
    return tutti_set_error(status, "cannot allocate buckets of %" PRId64 " bytes: %s", bytes, cause);
}

/* Allocates memory that the transports read in place, or plain memory if the group does not allocate. */
static int allocate(struct tutti_reducer *reducer, int64_t bytes, bool *is_malloced, void **memory)
{
    int status = bytes == 0 ? TUTTI_OK : TUTTI_ERR_UNSUPPORTED;
    *is_malloced = false;
    *memory = NULL;
    if (bytes > 0 && tutti_get_device(reducer->group).type == TUTTI_CPU)
        status = tutti_alloc(reducer->group, bytes, memory);
    if (status == TUTTI_ERR_UNSUPPORTED) {
        *is_malloced = true;
        status = posix_memalign(memory, ALIGNMENT, (size_t)bytes) == 0 ? TUTTI_OK : TUTTI_ERR_NO_MEMORY;
    }
    if (status != TUTTI_OK) return refuse_memory(status, bytes);
    if (bytes > 0) memset(*memory, 0, (size_t)bytes);
    return TUTTI_OK;
}

static int allocate_buckets(struct tutti_reducer *reducer)
{
    int64_t memory, wire;
    if (!measure(reducer, &memory, &wire))
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "the gradients together exceed any memory");
    int status = allocate(reducer, memory, &reducer->is_malloced, &reducer->memory);
    if (status == TUTTI_OK) status = allocate(reducer, wire, &reducer->is_wire_malloced, &reducer->wire_memory);
    if (status == TUTTI_OK) status = residual_create(reducer);
    if (status != TUTTI_OK || !reducer_has_views(reducer) || !reducer->opts.move_views) return status;
    reducer->spare = malloc((size_t)memory + 1);
    if (reducer->spare == NULL)
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "out of memory to move %" PRId64 " bytes of views", memory);
    return TUTTI_OK;
}

int reducer_layout_create(struct tutti_reducer *reducer)
{
    size_t n = (size_t)reducer->n;
    int status = check_keys(reducer);
    if (status == TUTTI_OK) status = allocate_buckets(reducer);
    if (status != TUTTI_OK) return status;
    reducer->bucket = calloc(2 * n, sizeof *reducer->bucket); /* the second half is for sorting */
    reducer->members = calloc(n, sizeof *reducer->members);
    reducer->offsets = calloc(n, sizeof *reducer->offsets);
    reducer->order = calloc(n, sizeof *reducer->order);
    reducer->agreed = calloc(n + 1, sizeof *reducer->agreed);
    if (reducer->bucket == NULL || reducer->members == NULL || reducer->offsets == NULL || reducer->order == NULL ||
        reducer->agreed == NULL)
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "out of memory for %d parameters", reducer->n);
    for (int i = 0; i < reducer->n; i++) reducer->order[i] = reducer->n - 1 - i;
    reducer_layout_assign(reducer, reducer->order);
    return TUTTI_OK;
}

static void release(struct tutti_reducer *reducer, bool is_malloced, void *memory)
{
    if (is_malloced)
        free(memory);
    else
        tutti_free(reducer->group, memory);
}

void reducer_layout_free(struct tutti_reducer *reducer)
{
    release(reducer, reducer->is_malloced, reducer->memory);
    release(reducer, reducer->is_wire_malloced, reducer->wire_memory);
    free(reducer->spare);
    free(reducer->residuals);
    free(reducer->bucket);
    free(reducer->members);
    free(reducer->offsets);
    free(reducer->order);
    free(reducer->agreed);
}
