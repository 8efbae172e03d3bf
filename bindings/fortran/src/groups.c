/* Fortran module: the default group, other groups, and what they know.  Each function is tutti.h's of the same name. */
#include "convert.h"

TUTTIF_API void tuttif_init_process_group(const CFI_cdesc_t *backend, const CFI_cdesc_t *init_method,
                                          const tuttif_store *store, const int *rank, const int *world_size,
                                          const int64_t *timeout_ms, const int64_t *store_timeout_ms,
                                          const tutti_device *device, const bool *newcomer, int *stat)
{
    TUTTIF_HELD char *name = NULL, *method = NULL;
    int status = tuttif_text(backend, &name);
    if (status == TUTTI_OK) status = tuttif_text(init_method, &method);
    tutti_init_opts opts = {.init_method = method,
                            .store = store != NULL ? store->handle : NULL,
                            .rank = rank != NULL ? *rank : 0,
                            .world_size = world_size != NULL ? *world_size : 0,
                            .timeout_ms = tuttif_ms(timeout_ms, 0),
                            .store_timeout_ms = tuttif_ms(store_timeout_ms, 0),
                            .newcomer = tuttif_flag(newcomer)};
    if (device != NULL) opts.device = *device;
    if (status == TUTTI_OK) status = tutti_init_process_group(name, &opts);
    tuttif_finish("tutti_init_process_group", status, stat);
}

TUTTIF_API void tuttif_destroy_process_group(tuttif_group *group, const int64_t *delivery_ms, int *stat)
{
    tutti_group *handle = tuttif_handle(group);
    int status = group != NULL && handle == NULL
                     ? tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "the group is null; it was destroyed or never made")
                 : delivery_ms != NULL ? tutti_destroy_process_group_within(handle, *delivery_ms)
                                       : tutti_destroy_process_group(handle);
    if (group != NULL && status == TUTTI_OK) group->handle = NULL;
    tuttif_finish("tutti_destroy_process_group", status, stat);
}

TUTTIF_API bool tuttif_is_backend_available(const CFI_cdesc_t *name)
{
    TUTTIF_HELD char *text = NULL;
    return tuttif_text(name, &text) == TUTTI_OK && tutti_is_backend_available(text);
}

TUTTIF_API void tuttif_abort(const tuttif_group *group, const CFI_cdesc_t *reason, int *stat)
{
    TUTTIF_HELD char *text = NULL;
    int status = tuttif_text(reason, &text);
    if (status == TUTTI_OK) status = tutti_abort(tuttif_handle(group), text);
    tuttif_finish("tutti_abort", status, stat);
}

/* ---- making groups ----------------------------------------------------------------------------------------- */

/* The strings of tutti_group_opts, which fill_opts copies. */
struct names {
    char *backend, *name, *algorithm;
};

static void free_names(struct names *names)
{
    free(names->backend);
    free(names->name);
    free(names->algorithm);
}
#define HELD_NAMES __attribute__((cleanup(free_names))) struct names

static int fill_opts(tutti_group_opts *opts, struct names *names, const CFI_cdesc_t *backend, const CFI_cdesc_t *name,
                     const CFI_cdesc_t *algorithm)
{
    int status = tuttif_text(backend, &names->backend);
    if (status == TUTTI_OK) status = tuttif_text(name, &names->name);
    if (status == TUTTI_OK) status = tuttif_text(algorithm, &names->algorithm);
    opts->backend = names->backend;
    opts->name = names->name;
    opts->algorithm = names->algorithm;
    return status;
}

TUTTIF_API void tuttif_new_group(const CFI_cdesc_t *ranks, tuttif_group *group, const tuttif_group *parent,
                                 const CFI_cdesc_t *backend, const CFI_cdesc_t *name, const CFI_cdesc_t *algorithm,
                                 const int64_t *timeout_ms, const bool *members_only, int *stat)
{
    tutti_group_opts opts = {.parent = tuttif_handle(parent),
                             .timeout_ms = tuttif_ms(timeout_ms, 0),
                             .members_only = tuttif_flag(members_only)};
    HELD_NAMES names = {NULL, NULL, NULL};
    TUTTIF_HELD void *held;
    const int *list = tuttif_elements(ranks, &held);
    group->handle = NULL;
    int status = fill_opts(&opts, &names, backend, name, algorithm);
    if (status == TUTTI_OK) status = tutti_new_group(list, tuttif_length(ranks), &opts, &group->handle);
    tuttif_finish("tutti_new_group", status, stat);
}

TUTTIF_API void tuttif_split_group(int color, int key, tuttif_group *group, const tuttif_group *parent,
                                   const CFI_cdesc_t *backend, const CFI_cdesc_t *name, const CFI_cdesc_t *algorithm,
                                   const int64_t *timeout_ms, int *stat)
{
    tutti_group_opts opts = {.parent = tuttif_handle(parent), .timeout_ms = tuttif_ms(timeout_ms, 0)};
    HELD_NAMES names = {NULL, NULL, NULL};
    group->handle = NULL;
    int status = fill_opts(&opts, &names, backend, name, algorithm);
    if (status == TUTTI_OK) status = tutti_split_group(color, key, &opts, &group->handle);
    tuttif_finish("tutti_split_group", status, stat);
}

TUTTIF_API void tuttif_create_group(const CFI_cdesc_t *backend, const tuttif_store *store, int rank, int world_size,
                                    tuttif_group *group, const CFI_cdesc_t *name, const CFI_cdesc_t *algorithm,
                                    const int64_t *timeout_ms, const tutti_device *device, int *stat)
{
    tutti_group_opts opts = {.timeout_ms = tuttif_ms(timeout_ms, 0)};
    HELD_NAMES names = {NULL, NULL, NULL};
    if (device != NULL) opts.device = *device;
    group->handle = NULL;
    int status = fill_opts(&opts, &names, NULL, name, algorithm);
    if (status == TUTTI_OK) status = tuttif_text(backend, &names.backend);
    if (status == TUTTI_OK)
        status = tutti_create_group(names.backend, store->handle, rank, world_size, &opts, &group->handle);
    tuttif_finish("tutti_create_group", status, stat);
}

TUTTIF_API void tuttif_join_group(const CFI_cdesc_t *backend, const tuttif_store *store, tuttif_group *group,
                                  const CFI_cdesc_t *name, const CFI_cdesc_t *algorithm, const int64_t *timeout_ms,
                                  int *stat)
{
    tutti_group_opts opts = {.timeout_ms = tuttif_ms(timeout_ms, 0)};
    HELD_NAMES names = {NULL, NULL, NULL};
    group->handle = NULL;
    int status = fill_opts(&opts, &names, NULL, name, algorithm);
    if (status == TUTTI_OK) status = tuttif_text(backend, &names.backend);
    if (status == TUTTI_OK) status = tutti_join_group(names.backend, store->handle, &opts, &group->handle);
    tuttif_finish("tutti_join_group", status, stat);
}

TUTTIF_API void tuttif_shrink_group(tuttif_group *smaller, const tuttif_group *group, int *stat)
{
    tutti_group *old = tuttif_handle(group);
    smaller->handle = NULL;
    tuttif_finish("tutti_shrink_group", tutti_shrink_group(old, &smaller->handle), stat);
}

/* Regroups the default group if `group` is absent, and then leaves `next` alone if that is absent, too. */
TUTTIF_API void tuttif_regroup(const tuttif_group *group, tuttif_group *next, const int64_t *timeout_ms,
                               const int *world_size, int *stat)
{
    const tutti_regroup_opts opts = {.timeout_ms = tuttif_ms(timeout_ms, 0),
                                     .world_size = world_size != NULL ? *world_size : 0};
    tutti_group *old = tuttif_handle(group);
    int status = tutti_regroup(old, &opts, next != NULL ? &next->handle : NULL);
    tuttif_finish("tutti_regroup", status, stat);
}

/* ---- queries ----------------------------------------------------------------------------------------------- */

TUTTIF_API bool tuttif_regroup_wanted(const tuttif_group *group)
{
    return tutti_regroup_wanted(tuttif_handle(group));
}

TUTTIF_API int tuttif_get_old_rank(int group_rank, const tuttif_group *group)
{
    return tutti_get_old_rank(tuttif_handle(group), group_rank);
}

TUTTIF_API int64_t tuttif_get_generation(const tuttif_group *group)
{
    return (int64_t)tutti_get_generation(tuttif_handle(group));
}

TUTTIF_API int tuttif_get_rank(const tuttif_group *group)
{
    return tutti_get_rank(tuttif_handle(group));
}

TUTTIF_API int tuttif_get_world_size(const tuttif_group *group)
{
    return tutti_get_world_size(tuttif_handle(group));
}

TUTTIF_API int tuttif_get_global_rank(int group_rank, const tuttif_group *group)
{
    return tutti_get_global_rank(tuttif_handle(group), group_rank);
}

TUTTIF_API int tuttif_get_group_rank(int global_rank, const tuttif_group *group)
{
    return tutti_get_group_rank(tuttif_handle(group), global_rank);
}

TUTTIF_API int tuttif_get_host(int group_rank, const tuttif_group *group)
{
    return tutti_get_host(tuttif_handle(group), group_rank);
}

TUTTIF_API const char *tuttif_get_name(const tuttif_group *group)
{
    return tutti_get_name(tuttif_handle(group));
}

TUTTIF_API const char *tuttif_get_backend(const tuttif_group *group)
{
    return tutti_get_backend(tuttif_handle(group));
}

TUTTIF_API void tuttif_get_device(tutti_device *device, const tuttif_group *group)
{
    *device = tutti_get_device(tuttif_handle(group));
}

TUTTIF_API int64_t tuttif_get_sequence(const tuttif_group *group)
{
    return (int64_t)tutti_get_sequence(tuttif_handle(group));
}

TUTTIF_API void tuttif_group_health(const CFI_cdesc_t *ranks, const tuttif_group *group, int *stat)
{
    int n = tuttif_length(ranks), status;
    if (n > 1 && ranks->dim[0].sm != (ptrdiff_t)sizeof(tutti_rank_health))
        status = tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "ranks is not contiguous; pass a whole array");
    else
        status = tutti_group_health(tuttif_handle(group), ranks->base_addr, n);
    tuttif_finish("tutti_group_health", status, stat);
}

TUTTIF_API void tuttif_get_stats(tutti_stats *stats, const tuttif_group *group, int *stat)
{
    tuttif_finish("tutti_get_stats", tutti_get_stats(tuttif_handle(group), stats), stat);
}

/* Writes the description that `what` selects to text: 0 the group, 1 an operation, 2 a backend, 3 all backends. */
TUTTIF_API int tuttif_describe(int what, const tuttif_group *group, int kind, int64_t bytes, const CFI_cdesc_t *name,
                               char *text, size_t capacity)
{
    const tutti_opts opts = {.group = tuttif_handle(group)};
    TUTTIF_HELD char *backend = NULL;
    int status = tuttif_text(name, &backend);
    if (status < 0) return status;
    if (what == 0) return tutti_describe_group(opts.group, text, capacity);
    if (what == 1) return tutti_explain((tutti_kind)kind, bytes, &opts, text, capacity);
    if (what == 2) return tutti_describe_backend(backend, text, capacity);
    return tutti_list_backends(text, capacity);
}

TUTTIF_API void tuttif_spawn(int (*fn)(int rank, void *argument), int nprocs, void *const *argument, int *stat)
{
    tuttif_finish("tutti_spawn", tutti_spawn(fn, argument != NULL ? *argument : NULL, nprocs), stat);
}
