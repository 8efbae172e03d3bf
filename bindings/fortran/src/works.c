/* Fortran module: works, coalescing, user ops, memory, marks and log.  Each function is tutti.h's of the same name. */
#include "convert.h"

/* ---- works ------------------------------------------------------------------------------------------------- */

TUTTIF_API void tuttif_wait(tuttif_work *work, const int64_t *timeout_ms, int *stat)
{
    int64_t ms = tuttif_ms(timeout_ms, TUTTI_DEFAULT_TIMEOUT);
    tuttif_finish("tutti_wait", tutti_wait(&work->handle, ms), stat);
}

TUTTIF_API void tuttif_work_wait(const tuttif_work *work, const int64_t *timeout_ms, int *stat)
{
    int64_t ms = tuttif_ms(timeout_ms, TUTTI_DEFAULT_TIMEOUT);
    tuttif_finish("tutti_work_wait", tutti_work_wait(work->handle, ms), stat);
}

/* Returns the array of handles of an array of works, or NULL if its elements are not consecutive. */
static tutti_work **handles_of(const CFI_cdesc_t *works)
{
    if (tuttif_length(works) > 1 && works->dim[0].sm != (ptrdiff_t)sizeof(tuttif_work)) {
        tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "works is not contiguous; pass a whole array");
        return NULL;
    }
    return works->base_addr;
}

TUTTIF_API void tuttif_wait_all(const CFI_cdesc_t *works, const int64_t *timeout_ms, int *stat)
{
    tutti_work **handles = handles_of(works);
    int64_t ms = tuttif_ms(timeout_ms, TUTTI_DEFAULT_TIMEOUT);
    int n = tuttif_length(works), status = n > 0 && handles == NULL ? TUTTI_ERR_INVALID_ARGUMENT : TUTTI_OK;
    if (status == TUTTI_OK && n > 0) status = tutti_wait_all(handles, n, ms);
    tuttif_finish("tutti_wait_all", status, stat);
}

/* Stores the position from 1, or 0 if all works are null or time has passed. */
TUTTIF_API void tuttif_wait_any(const CFI_cdesc_t *works, int *position, const int64_t *timeout_ms, int *stat)
{
    tutti_work **handles = handles_of(works);
    int64_t ms = tuttif_ms(timeout_ms, TUTTI_DEFAULT_TIMEOUT);
    int n = tuttif_length(works), index = -1;
    int status = n > 0 && handles == NULL ? TUTTI_ERR_INVALID_ARGUMENT : TUTTI_OK;
    if (status == TUTTI_OK && n > 0) status = tutti_wait_any(handles, n, ms, &index);
    *position = index + 1;
    tuttif_finish("tutti_wait_any", status, stat);
}

TUTTIF_API bool tuttif_work_is_completed(const tuttif_work *work)
{
    return tutti_work_is_completed(work->handle);
}

TUTTIF_API int tuttif_work_status(const tuttif_work *work)
{
    return tutti_work_status(work->handle);
}

TUTTIF_API const char *tuttif_work_error(const tuttif_work *work)
{
    return tutti_work_error(work->handle);
}

TUTTIF_API void tuttif_work_then(const tuttif_work *work, void (*callback)(tutti_work *work, void *argument),
                                 void *const *argument, int *stat)
{
    int status = tutti_work_then(work->handle, callback, argument != NULL ? *argument : NULL);
    tuttif_finish("tutti_work_then", status, stat);
}

TUTTIF_API int tuttif_work_op(const tuttif_work *work)
{
    return (int)tutti_work_op(work->handle);
}

TUTTIF_API int64_t tuttif_work_sequence(const tuttif_work *work)
{
    return (int64_t)tutti_work_sequence(work->handle);
}

TUTTIF_API int64_t tuttif_work_duration_ns(const tuttif_work *work)
{
    return tutti_work_duration_ns(work->handle);
}

TUTTIF_API int tuttif_work_source(const tuttif_work *work)
{
    return tutti_work_source(work->handle);
}

TUTTIF_API int tuttif_work_tag(const tuttif_work *work)
{
    return tutti_work_tag(work->handle);
}

TUTTIF_API int64_t tuttif_work_received(const tuttif_work *work)
{
    return tutti_work_received(work->handle);
}

TUTTIF_API void tuttif_work_free(tuttif_work *work)
{
    tutti_work_free(work->handle);
    work->handle = NULL;
}

TUTTIF_API void tuttif_group_quiesce(const tuttif_group *group, const int64_t *timeout_ms, int *stat)
{
    int64_t ms = tuttif_ms(timeout_ms, TUTTI_DEFAULT_TIMEOUT);
    tuttif_finish("tutti_group_quiesce", tutti_group_quiesce(tuttif_handle(group), ms), stat);
}

TUTTIF_API void tuttif_coalesce_begin(const tuttif_group *group, int *stat)
{
    tuttif_finish("tutti_coalesce_begin", tutti_coalesce_begin(tuttif_handle(group)), stat);
}

TUTTIF_API void tuttif_coalesce_end(const tuttif_group *group, tuttif_work *work, int *stat)
{
    if (work != NULL) work->handle = NULL;
    int status = tutti_coalesce_end(tuttif_handle(group), work != NULL ? &work->handle : NULL);
    tuttif_finish("tutti_coalesce_end", status, stat);
}

/* ---- reductions of the program's own ----------------------------------------------------------------------- */

TUTTIF_API void tuttif_op_create(const CFI_cdesc_t *name, tutti_op_fn fn, tuttif_reduce_op *op, void *const *argument,
                                 const int64_t *element_bytes, const bool *commutative, int *stat)
{
    const tutti_op_opts opts = {.element_bytes = tuttif_ms(element_bytes, 0), .commutative = tuttif_flag(commutative)};
    tutti_reduce_op made = TUTTI_SUM;
    TUTTIF_HELD char *text = NULL;
    int status = tuttif_text(name, &text);
    if (status == TUTTI_OK) status = tutti_op_create(text, fn, argument != NULL ? *argument : NULL, &opts, &made);
    op->value = (int)made;
    tuttif_finish("tutti_op_create", status, stat);
}

TUTTIF_API void tuttif_op_free(const tuttif_reduce_op *op, int *stat)
{
    tuttif_finish("tutti_op_free", tutti_op_free((tutti_reduce_op)op->value), stat);
}

/* ---- tensors and memory ------------------------------------------------------------------------------------ */

TUTTIF_API void tuttif_view(const CFI_cdesc_t *x, tutti_tensor *tensor, const tuttif_dtype *dtype, int *stat)
{
    tuttif_finish("tutti_view", tuttif_tensor(x, dtype, "x", tensor), stat);
}

TUTTIF_API void tuttif_alloc(int64_t bytes, void **memory, const tuttif_group *group, int *stat)
{
    *memory = NULL;
    tuttif_finish("tutti_alloc", tutti_alloc(tuttif_handle(group), bytes, memory), stat);
}

TUTTIF_API void tuttif_free(void **memory, const tuttif_group *group, int *stat)
{
    int status = tutti_free(tuttif_handle(group), *memory);
    if (status == TUTTI_OK) *memory = NULL;
    tuttif_finish("tutti_free", status, stat);
}

TUTTIF_API void tuttif_reduce_local(const CFI_cdesc_t *inout, const CFI_cdesc_t *in, const tuttif_reduce_op *op,
                                    const tuttif_dtype *dtype, int *stat)
{
    tutti_tensor to, from;
    int status = tuttif_tensor(inout, dtype, "inout", &to);
    if (status == TUTTI_OK) status = tuttif_tensor(in, dtype, "in", &from);
    if (status == TUTTI_OK) status = tutti_reduce_local(to, from, (tutti_reduce_op)op->value);
    tuttif_finish("tutti_reduce_local", status, stat);
}

TUTTIF_API void tuttif_cast(const CFI_cdesc_t *out, const CFI_cdesc_t *in, const tuttif_dtype *out_dtype,
                            const tuttif_dtype *in_dtype, int *stat)
{
    tutti_tensor to, from;
    int status = tuttif_tensor(out, out_dtype, "out", &to);
    if (status == TUTTI_OK) status = tuttif_tensor(in, in_dtype, "in", &from);
    if (status == TUTTI_OK) status = tutti_cast(to, from);
    tuttif_finish("tutti_cast", status, stat);
}

/* ---- marks and log ----------------------------------------------------------------------------------------- */

TUTTIF_API void tuttif_mark(const CFI_cdesc_t *text, int *stat)
{
    TUTTIF_HELD char *copy = NULL;
    int status = tuttif_text(text, &copy);
    if (status == TUTTI_OK) status = tutti_mark(copy);
    tuttif_finish("tutti_mark", status, stat);
}

TUTTIF_API void tuttif_record_write(const CFI_cdesc_t *folder, int *stat)
{
    TUTTIF_HELD char *copy = NULL;
    int status = tuttif_text(folder, &copy);
    if (status == TUTTI_OK) status = tutti_record_write(copy);
    tuttif_finish("tutti_record_write", status, stat);
}

TUTTIF_API void tuttif_range_push(const CFI_cdesc_t *name)
{
    TUTTIF_HELD char *copy = NULL;
    tuttif_text(name, &copy);
    tutti_range_push(copy);
}

TUTTIF_API void tuttif_log(const CFI_cdesc_t *subsystem, int level, const CFI_cdesc_t *text)
{
    TUTTIF_HELD char *name = NULL, *copy = NULL;
    if (tuttif_text(subsystem, &name) < 0 || tuttif_text(text, &copy) < 0) return;
    tutti_log(name, level, "%s", copy);
}
