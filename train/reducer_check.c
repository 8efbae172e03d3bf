#include "reducer_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1 << 20, PARAMETERS_MOST = 1 << 24 };

static int refuse(const char *what)
{
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "%s", what);
}

static bool is_compressed_dtype(tutti_dtype dtype)
{
    return dtype == 0 || dtype == TUTTI_BFLOAT16 || dtype == TUTTI_FLOAT16 || dtype == TUTTI_FLOAT8_E4M3FN;
}

/* Refuses a timeout, and replaces it by one with which the ranks can agree on that. */
static int refuse_timeout(tutti_reducer_opts *opts)
{
    int64_t timeout_ms = opts->timeout_ms;
    opts->timeout_ms = 0;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                           "timeout_ms is %" PRId64 "; it must not be negative, and 0 is the group's", timeout_ms);
}

int reducer_check_options(tutti_reducer_opts *opts)
{
    if (opts->timeout_ms < 0) return refuse_timeout(opts);
    if (opts->bucket_bytes < 0 || opts->first_bucket_bytes < 0)
        return refuse("bucket_bytes or first_bucket_bytes is negative; 0 is the default");
    if (opts->bucket_bytes == 0) opts->bucket_bytes = 25 * MIB;
    if (opts->first_bucket_bytes == 0) opts->first_bucket_bytes = MIB;
    if (opts->hook_phases < 0 || opts->hook_phases > 16) return refuse("hook_phases is outside 0 .. 16");
    if (opts->hook != NULL && opts->hook_phases == 0) opts->hook_phases = 1;
    if (!is_compressed_dtype(opts->compress)) return refuse("compress takes bfloat16, float16 or float8_e4m3fn");
    if (opts->hook != NULL && opts->compress != 0) return refuse("hook and compress exclude each other");
    if (opts->error_feedback && opts->compress == 0) return refuse("error_feedback needs compress");
    if (opts->divide_by_active && opts->sum) return refuse("divide_by_active and sum exclude each other");
    if (opts->divide_by_active && !opts->join) return refuse("divide_by_active needs join");
    if (opts->move_views && !opts->gradient_as_bucket_view) return refuse("move_views needs gradient_as_bucket_view");
    return TUTTI_OK;
}

/* Refuses options that CUDA gradients cannot have. */
static int check_cuda(const tutti_reducer_opts *opts, const char *name)
{
    const char *option = opts->gradient_as_bucket_view ? "gradient_as_bucket_view"
                         : opts->compress != 0         ? "compress"
                         : opts->hook != NULL          ? "hook"
                         : opts->join                  ? "join"
                                                       : NULL;
    if (option == NULL) return TUTTI_OK;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "gradient '%s' is on CUDA, where %s is not available", name,
                           option);
}

/* True if the reducer can divide by itself. */
static bool is_divisible(tutti_dtype dtype)
{
    return dtype == TUTTI_FLOAT32 || dtype == TUTTI_FLOAT64 || dtype == TUTTI_COMPLEX64 || dtype == TUTTI_COMPLEX128;
}

/* Refuses a tensor on a device for which the group has no backend. */
static int check_served(const tutti_reducer_opts *opts, const char *what, const char *name, tutti_tensor tensor)
{
    const char *map = tutti_get_backend(opts->group);
    bool is_cpu = tensor.device.type == TUTTI_CPU;
    if (strstr(map, is_cpu ? "cpu:" : "cuda:") != NULL) return TUTTI_OK;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                           "%s '%s' is on %s, but the group (%s) has no backend for that; add one to its backends",
                           what, name, is_cpu ? "CPU" : "CUDA", map);
}

static int check_device(const char *what, const char *name, tutti_tensor tensor)
{
    if (tensor.device.type == TUTTI_CPU || tensor.device.type == TUTTI_CUDA) return TUTTI_OK;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "%s '%s' is on device type %d; pass TUTTI_CPU or TUTTI_CUDA",
                           what, name, tensor.device.type);
}

static int check_gradient(const tutti_reducer_opts *opts, const char *name, tutti_tensor gradient)
{
    const char *dtype = tutti_dtype_name(gradient.dtype);
    bool is_cpu = gradient.device.type == TUTTI_CPU, divides = opts->hook != NULL || opts->divide_by_active;
    if (gradient.numel < 0 || gradient.numel > INT64_MAX / 64)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "gradient '%s' has %" PRId64 " elements", name,
                               gradient.numel);
    if (strcmp(dtype, "?") == 0 || gradient.dtype == TUTTI_BOOL)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "gradient '%s' has dtype %s, which cannot be averaged", name,
                               dtype);
    if (gradient.data == NULL && gradient.numel > 0 && !opts->gradient_as_bucket_view)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "gradient '%s' is NULL; pass its memory", name);
    int status = check_device("gradient", name, gradient);
    if (status != TUTTI_OK) return status;
    if (divides && !opts->sum && !is_divisible(gradient.dtype))
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "gradient '%s' is %s; %s averages float32, float64 and complex gradients only", name,
                               dtype, opts->hook != NULL ? "a reducer with a hook" : "divide_by_active");
    status = is_cpu ? TUTTI_OK : check_cuda(opts, name);
    return status == TUTTI_OK ? check_served(opts, "gradient", name, gradient) : status;
}

static int check_value(const tutti_reducer_opts *opts, const char *name, tutti_tensor value)
{
    if (value.numel == 0) return TUTTI_OK;
    if (value.numel < 0 || value.data == NULL)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "value '%s' is NULL or has %" PRId64 " elements", name,
                               value.numel);
    int status = check_device("value", name, value);
    return status == TUTTI_OK ? check_served(opts, "value", name, value) : status;
}

/* Copies a name, without line breaks, because lists are compared by lines. */
static char *copy_name(const char *name, int i)
{
    char number[32];
    snprintf(number, sizeof number, "parameter %d", i);
    char *copy = strdup(name != NULL ? name : number);
    for (char *at = copy; at != NULL && *at != '\0'; at++)
        if (*at == '\n') *at = ' ';
    return copy;
}

static int copy_parameter(const tutti_reducer_opts *opts, const tutti_parameter *from, int i, struct parameter *to)
{
    to->name = copy_name(from->name, i);
    to->value = from->value;
    to->gradient = from->gradient;
    if (to->name == NULL) return tutti_set_error(TUTTI_ERR_NO_MEMORY, "out of memory for parameter %d", i);
    int status = check_gradient(opts, to->name, to->gradient);
    return status == TUTTI_OK ? check_value(opts, to->name, to->value) : status;
}

int reducer_copy_list(struct tutti_reducer *reducer, const void *list, size_t parameter_bytes, int n)
{
    if (list == NULL || n < 1 || n > PARAMETERS_MOST)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "the list is %p with %d parameters; pass 1 to %d", list, n,
                               PARAMETERS_MOST);
    reducer->parameter = calloc((size_t)n, sizeof *reducer->parameter);
    if (reducer->parameter == NULL) return tutti_set_error(TUTTI_ERR_NO_MEMORY, "out of memory for %d parameters", n);
    for (reducer->n = 0; reducer->n < n;) {
        tutti_parameter given;
        int i = reducer->n++, status = tutti_sized_read("tutti_parameter", (const char *)list + i * parameter_bytes,
                                                        parameter_bytes, &given, sizeof given);
        if (status == TUTTI_OK) status = copy_parameter(&reducer->opts, &given, i, &reducer->parameter[i]);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}
