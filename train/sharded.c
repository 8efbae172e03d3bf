/* Making and ending a sharded optimizer. */
#include <inttypes.h>

#include "agree.h"
#include "sharded_state.h"

enum { BUCKET_BYTES = 25 << 20, FREE_WAIT_MS = 2000 };

/* ---- dtypes ------------------------------------------------------------------------------------------------ */

int shard_convert(tutti_tensor out, tutti_tensor in)
{
    return in.numel > 0 && out.data != in.data ? tutti_cast(out, in) : TUTTI_OK;
}

static bool is_real(tutti_dtype dtype)
{
    return dtype == TUTTI_FLOAT16 || dtype == TUTTI_BFLOAT16 || dtype == TUTTI_FLOAT32 || dtype == TUTTI_FLOAT64;
}

/* ---- checks ------------------------------------------------------------------------------------------------ */

static int check_tensor(const char *name, const char *what, tutti_tensor tensor, bool may_be_null, tutti_dtype shard)
{
    if (tensor.device.type != TUTTI_CPU)
        return tutti_set_error(TUTTI_ERR_UNSUPPORTED,
                               "sharded_create: the %s of \"%s\" is on device type %d; only CPU tensors are supported",
                               what, name, tensor.device.type);
    if (tensor.numel < 0 || tensor.numel > INT64_MAX / 64)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "sharded_create: the %s of \"%s\" has %" PRId64 " elements; pass 0 to 2^57", what, name,
                               tensor.numel);
    if (tensor.data == NULL && tensor.numel > 0 && !may_be_null)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "sharded_create: the %s of \"%s\" is NULL", what, name);
    if (!is_real(tensor.dtype))
        return tutti_set_error(TUTTI_ERR_UNSUPPORTED,
                               "sharded_create: the %s of \"%s\" is %s; use float16, bfloat16, float32 or float64",
                               what, name, tutti_dtype_name(tensor.dtype));
    if (tutti_dtype_bytes(tensor.dtype) > tutti_dtype_bytes(shard))
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "sharded_create: the %s of \"%s\" is %s, but the shard is %s; set opts.dtype to %s",
                               what, name, tutti_dtype_name(tensor.dtype), tutti_dtype_name(shard),
                               tutti_dtype_name(tensor.dtype));
    return TUTTI_OK;
}

static int check_parameter(const struct shard_parameter *parameter, const tutti_sharded_opts *opts)
{
    bool views = opts->values_as_views;
    int status = check_tensor(parameter->name, "value", parameter->value, views, opts->dtype);
    if (status == TUTTI_OK) status = check_tensor(parameter->name, "gradient", parameter->gradient, false, opts->dtype);
    if (status != TUTTI_OK || parameter->gradient.numel == parameter->value.numel) return status;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                           "sharded_create: the value of \"%s\" has %" PRId64 " elements, but its gradient %" PRId64,
                           parameter->name, parameter->value.numel, parameter->gradient.numel);
}

/* Checks the options and fills in defaults.  A negative timeout becomes 0, so that the ranks can agree that it is
 * refused.
 */
static int check_opts(tutti_sharded_opts *opts)
{
    int64_t timeout_ms = opts->timeout_ms;
    if (timeout_ms < 0) opts->timeout_ms = 0;
    if (opts->dtype == 0) opts->dtype = TUTTI_FLOAT32;
    if (opts->dtype != TUTTI_FLOAT32 && opts->dtype != TUTTI_FLOAT64)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "sharded_create: opts.dtype is %s (0x%x); use float32 or float64",
                               tutti_dtype_name(opts->dtype), (unsigned)opts->dtype);
    if (opts->bucket_bytes < 0 || timeout_ms < 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "sharded_create: bucket_bytes is %" PRId64 " and timeout_ms %" PRId64
                               "; they must not be negative",
                               opts->bucket_bytes, timeout_ms);
    if (opts->bucket_bytes == 0) opts->bucket_bytes = BUCKET_BYTES;
    return TUTTI_OK;
}

/* ---- making ------------------------------------------------------------------------------------------------ */

static int out_of_memory(int n)
{
    return tutti_set_error(TUTTI_ERR_NO_MEMORY, "sharded_create: no memory for a list of %d parameters", n);
}

static int copy_parameter(struct shard_parameter *copy, const void *given, size_t bytes, int i)
{
    char name[32];
    tutti_parameter parameter;
    int status = tutti_sized_read("tutti_parameter", given, bytes, &parameter, sizeof parameter);
    if (status != TUTTI_OK) return status;
    snprintf(name, sizeof name, "parameter %d", i);
    *copy = (struct shard_parameter){.name = strdup(parameter.name != NULL ? parameter.name : name),
                                     .value = parameter.value,
                                     .gradient = parameter.gradient};
    return copy->name != NULL ? TUTTI_OK : out_of_memory(i + 1);
}

/* Copies and checks the list. */
static int read_list(struct tutti_sharded *sharded, const tutti_parameter *parameters, size_t bytes, int n)
{
    int64_t total = 0;
    int status = check_opts(&sharded->opts);
    if (status != TUTTI_OK) return status;
    if (parameters == NULL || n < 1)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "sharded_create: parameters is %p with %d entries; pass at least one",
                               (const void *)parameters, n);
    sharded->parameter = calloc((size_t)n, sizeof *sharded->parameter);
    if (sharded->parameter == NULL) return out_of_memory(n);
    for (int i = 0; i < n && status == TUTTI_OK; i++) {
        struct shard_parameter *copy = &sharded->parameter[i];
        status = copy_parameter(copy, (const char *)parameters + (size_t)i * bytes, bytes, i);
        sharded->n = i + 1;
        if (status == TUTTI_OK) status = check_parameter(copy, &sharded->opts);
        if (status == TUTTI_OK && (total += copy->value.numel) > INT64_MAX / 64)
            status =
                tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                                "sharded_create: the parameters up to \"%s\" have more than 2^57 elements", copy->name);
    }
    return status;
}

/* Writes a line for the options and one for each parameter.  The caller frees it.  Returns NULL without memory. */
static char *describe(const struct tutti_sharded *sharded)
{
    char *text = NULL;
    size_t bytes;
    const tutti_sharded_opts *opts = &sharded->opts;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL) return NULL;
    fprintf(file, "bucket_bytes %" PRId64 ", dtype %s, sum %d, unused_as_zero %d, values_as_views %d\n",
            opts->bucket_bytes, tutti_dtype_name(opts->dtype), opts->sum, opts->unused_as_zero, opts->values_as_views);
    for (int i = 0; i < sharded->n; i++) {
        const struct shard_parameter *parameter = &sharded->parameter[i];
        fprintf(file, "parameter %d \"%s\" of %" PRId64 " %s with gradient %s\n", i, parameter->name,
                parameter->value.numel, tutti_dtype_name(parameter->value.dtype),
                tutti_dtype_name(parameter->gradient.dtype));
    }
    if (fclose(file) == 0) return text;
    free(text);
    return NULL;
}

static int agree_on_list(struct tutti_sharded *sharded, int status)
{
    char *text = status == TUTTI_OK ? describe(sharded) : NULL;
    if (status == TUTTI_OK && text == NULL) status = out_of_memory(sharded->n);
    status = agree_on_text(sharded->opts.group, sharded->opts.timeout_ms, "sharded_create", status, text);
    free(text);
    return status;
}

/* Allocates the shard's tensors. */
static int alloc_shard(struct tutti_sharded *sharded)
{
    size_t bytes = (size_t)(sharded->shard_numel * tutti_dtype_bytes(sharded->opts.dtype));
    sharded->value = calloc(bytes + 1, 1);
    sharded->gradient = calloc(bytes + 1, 1);
    if (sharded->value != NULL && sharded->gradient != NULL) return TUTTI_OK;
    return tutti_set_error(TUTTI_ERR_NO_MEMORY, "sharded_create: no memory for a shard of twice %zu bytes", bytes);
}

/* Allocates the buckets' memory, so that a lack of it is found here: all values, and the first buffers. */
static int alloc_buckets(struct tutti_sharded *sharded)
{
    int status = TUTTI_OK;
    for (int k = 0; k < sharded->n_buckets && status == TUTTI_OK; k++) {
        struct shard_bucket *bucket = &sharded->bucket[k];
        const struct shard_parameter *first = &sharded->parameter[bucket->first];
        size_t padded = (size_t)(bucket->part * sharded->size);
        size_t bytes = padded * (size_t)tutti_dtype_bytes(first->gradient.dtype);
        if (bytes > sharded->pool.bytes) sharded->pool.bytes = bytes;
        status = shard_memory_alloc(&bucket->value, sharded->opts.group,
                                    padded * (size_t)tutti_dtype_bytes(first->value.dtype));
    }
    if (status != TUTTI_OK) return status;
    struct shard_memory *one = shard_pool_take(sharded);
    if (one == NULL) return TUTTI_ERR_NO_MEMORY;
    shard_pool_put(&sharded->pool, one);
    return TUTTI_OK;
}

/* Makes the optimizer.  Each step that may fail on one rank alone ends with an agreement. */
static int make(struct tutti_sharded *sharded, const tutti_parameter *parameters, size_t bytes, int n)
{
    int status = agree_on_list(sharded, read_list(sharded, parameters, bytes, n));
    if (status != TUTTI_OK) return status;
    status = shard_layout_make(sharded) ? TUTTI_OK : out_of_memory(n);
    if (status == TUTTI_OK) status = alloc_shard(sharded);
    if (status == TUTTI_OK) status = alloc_buckets(sharded);
    status = agree_on_status(sharded->opts.group, sharded->opts.timeout_ms, status);
    return status == TUTTI_OK ? shard_values_broadcast(sharded) : status;
}

int tutti_sharded_create_sized(const tutti_parameter *parameters, size_t parameter_bytes, int n,
                               const tutti_sharded_opts *opts, size_t opts_bytes, tutti_sharded **sharded)
{
    tutti_sharded_opts options;
    if (sharded == NULL) return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "sharded_create: sharded is NULL");
    *sharded = NULL;
    int status = tutti_sized_read("tutti_sharded_opts", opts, opts_bytes, &options, sizeof options);
    if (status != TUTTI_OK) return status;
    if (tutti_get_rank(options.group) < 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "sharded_create: this rank is not a member of the group");
    struct tutti_sharded *made = calloc(1, sizeof *made);
    if (made == NULL) return out_of_memory(n);
    made->opts = options;
    made->rank = tutti_get_rank(options.group);
    made->size = tutti_get_world_size(options.group);
    status = make(made, parameters, parameter_bytes, n);
    if (status == TUTTI_OK) {
        tutti_log("train", TUTTI_LOG_INFO, "a sharded optimizer has %d parameters, and %lld elements on this rank", n,
                  (long long)made->shard_numel);
        *sharded = made;
        return TUTTI_OK;
    }
    char text[1024];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    tutti_sharded_destroy(made);
    return tutti_set_error(status, "%s", text);
}

/* ---- the shard --------------------------------------------------------------------------------------------- */

tutti_tensor tutti_sharded_value(const tutti_sharded *sharded)
{
    return tutti_tensor_of(sharded->value, sharded->shard_numel, sharded->opts.dtype);
}

tutti_tensor tutti_sharded_gradient(const tutti_sharded *sharded)
{
    return tutti_tensor_of(sharded->gradient, sharded->shard_numel, sharded->opts.dtype);
}

/* Finds the intersection of this rank's part of a bucket with a parameter. */
static bool intersect(const struct tutti_sharded *sharded, const struct shard_bucket *bucket, int i,
                      tutti_sharded_piece *piece)
{
    const struct shard_parameter *parameter = &sharded->parameter[i];
    int64_t own = bucket->at + bucket->own, end = own + bucket->n_own, begin = parameter->at;
    int64_t parameter_end = parameter->at + parameter->value.numel;
    if (begin < own) begin = own;
    if (end > parameter_end) end = parameter_end;
    *piece = (tutti_sharded_piece){
        .parameter = i, .begin = begin - parameter->at, .numel = end - begin, .at = bucket->shard_at + begin - own};
    return piece->numel > 0;
}

bool tutti_sharded_get_piece(const tutti_sharded *sharded, int k, tutti_sharded_piece *piece)
{
    tutti_sharded_piece found;
    for (int i = 0; i < sharded->n && k >= 0; i++)
        if (intersect(sharded, &sharded->bucket[sharded->parameter[i].bucket], i, &found) && k-- == 0) {
            *piece = found;
            return true;
        }
    return false;
}

/* ---- ending ------------------------------------------------------------------------------------------------ */

/* Ends an operation that still uses the bucket's memory. */
static void drain(struct tutti_sharded *sharded, tutti_work **work)
{
    if (*work == NULL) return;
    if (tutti_wait(work, FREE_WAIT_MS) == TUTTI_OK || *work == NULL) return;
    tutti_abort(sharded->opts.group, "a sharded optimizer was destroyed while its operations were running");
    tutti_wait(work, TUTTI_DEFAULT_TIMEOUT);
}

void tutti_sharded_destroy(tutti_sharded *sharded)
{
    if (sharded == NULL) return;
    for (int k = 0; k < sharded->n_buckets; k++) {
        drain(sharded, &sharded->bucket[k].reducing);
        drain(sharded, &sharded->bucket[k].gathering);
        shard_memory_free(&sharded->bucket[k].value, sharded->opts.group);
    }
    shard_pool_free(&sharded->pool, sharded->opts.group);
    for (int i = 0; i < sharded->n; i++) free(sharded->parameter[i].name);
    free(sharded->parameter);
    free(sharded->bucket);
    free(sharded->value);
    free(sharded->gradient);
    free(sharded);
}
