/* Fortran module: point to point, and byte strings.  Each function is tutti.h's of the same name. */
#include "convert.h"

/* Fills the options of a message from arguments that may be absent. */
static tutti_opts message_options(tutti_opts opts, const int *tag, int *source, int *received_tag, int64_t *received)
{
    if (tag != NULL) opts.tag = *tag;
    opts.source = source;
    opts.received_tag = received_tag;
    opts.received = received;
    return opts;
}

TUTTIF_API void tuttif_send(const CFI_cdesc_t *x, int dst, const int *tag, TUTTIF_OPTIONS)
{
    const tutti_opts opts = message_options(tuttif_options(TUTTIF_GIVEN), tag, NULL, NULL, NULL);
    tutti_tensor tensor;
    int status = tuttif_tensor(x, dtype, "x", &tensor);
    if (status == TUTTI_OK) status = tutti_send(tensor, dst, &opts);
    tuttif_finish("tutti_send", status, stat);
}

TUTTIF_API void tuttif_recv(const CFI_cdesc_t *x, int src, const int *tag, int *source, int *received_tag,
                            int64_t *received, TUTTIF_OPTIONS)
{
    const tutti_opts opts = message_options(tuttif_options(TUTTIF_GIVEN), tag, source, received_tag, received);
    tutti_tensor tensor;
    int status = tuttif_tensor(x, dtype, "x", &tensor);
    if (status == TUTTI_OK) status = tutti_recv(tensor, src, &opts);
    tuttif_finish("tutti_recv", status, stat);
}

TUTTIF_API void tuttif_isend(const CFI_cdesc_t *x, int dst, tuttif_work *work, const int *tag,
                             const tuttif_group *group, const int64_t *timeout_ms, const bool *group_rank,
                             const tuttif_dtype *dtype, int *stat)
{
    const tutti_opts opts = message_options(tuttif_options(group, NULL, timeout_ms, group_rank), tag, NULL, NULL, NULL);
    tutti_tensor tensor;
    work->handle = NULL;
    int status = tuttif_tensor(x, dtype, "x", &tensor);
    if (status == TUTTI_OK) status = tutti_isend(tensor, dst, &opts, &work->handle);
    tuttif_finish("tutti_isend", status, stat);
}

TUTTIF_API void tuttif_irecv(const CFI_cdesc_t *x, int src, tuttif_work *work, const int *tag, int64_t *received,
                             const tuttif_group *group, const int64_t *timeout_ms, const bool *group_rank,
                             const tuttif_dtype *dtype, int *stat)
{
    const tutti_opts opts =
        message_options(tuttif_options(group, NULL, timeout_ms, group_rank), tag, NULL, NULL, received);
    tutti_tensor tensor;
    work->handle = NULL;
    int status = tuttif_tensor(x, dtype, "x", &tensor);
    if (status == TUTTI_OK) status = tutti_irecv(tensor, src, &opts, &work->handle);
    tuttif_finish("tutti_irecv", status, stat);
}

TUTTIF_API void tuttif_batch_isend_irecv(const CFI_cdesc_t *ops, const CFI_cdesc_t *works, const tuttif_group *group,
                                         const int64_t *timeout_ms, const bool *group_rank, int *stat)
{
    const tutti_opts opts = tuttif_options(group, NULL, timeout_ms, group_rank);
    TUTTIF_HELD void *held;
    const tutti_p2p_op *list = tuttif_elements(ops, &held);
    int n = tuttif_length(ops), status;
    if (tuttif_length(works) < n || (n > 1 && works->dim[0].sm != (ptrdiff_t)sizeof(tuttif_work)))
        status =
            tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "works has %d entries; pass a contiguous array of at least %d",
                            tuttif_length(works), n);
    else
        status = tutti_batch_isend_irecv(list, n, &opts, works->base_addr);
    tuttif_finish("tutti_batch_isend_irecv", status, stat);
}

TUTTIF_API void tuttif_probe(int src, tutti_message *message, const int *tag, const tuttif_group *group,
                             const int64_t *timeout_ms, const bool *group_rank, int *stat)
{
    const tutti_opts opts = message_options(tuttif_options(group, NULL, timeout_ms, group_rank), tag, NULL, NULL, NULL);
    tuttif_finish("tutti_probe", tutti_probe(src, &opts, message), stat);
}

TUTTIF_API void tuttif_iprobe(int src, bool *found, tutti_message *message, const int *tag, const tuttif_group *group,
                              const bool *group_rank, int *stat)
{
    const tutti_opts opts = message_options(tuttif_options(group, NULL, NULL, group_rank), tag, NULL, NULL, NULL);
    tuttif_finish("tutti_iprobe", tutti_iprobe(src, &opts, found, message), stat);
}

/* ---- byte strings ------------------------------------------------------------------------------------------ */

/* The bytes of a string with all its blanks. */
static const void *bytes_of(const CFI_cdesc_t *text)
{
    return text->elem_len > 0 ? text->base_addr : NULL;
}

TUTTIF_API void tuttif_send_bytes(const CFI_cdesc_t *text, int dst, const int *tag, const tuttif_group *group,
                                  const int64_t *timeout_ms, const bool *group_rank, int *stat)
{
    const tutti_opts opts = message_options(tuttif_options(group, NULL, timeout_ms, group_rank), tag, NULL, NULL, NULL);
    tuttif_finish("tutti_send_bytes", tutti_send_bytes(bytes_of(text), text->elem_len, dst, &opts), stat);
}

TUTTIF_API void tuttif_recv_bytes(tutti_bytes *out, int src, const int *tag, int *source, int *received_tag,
                                  const tuttif_group *group, const int64_t *timeout_ms, const bool *group_rank,
                                  int *stat)
{
    const tutti_opts opts =
        message_options(tuttif_options(group, NULL, timeout_ms, group_rank), tag, source, received_tag, NULL);
    *out = (tutti_bytes){NULL, 0};
    tuttif_finish("tutti_recv_bytes", tutti_recv_bytes(out, src, &opts), stat);
}

/* Checks that a list of byte strings can be filled. */
static int check_list(const CFI_cdesc_t *list)
{
    if (tuttif_length(list) < 2 || list->dim[0].sm == (ptrdiff_t)sizeof(tutti_bytes)) return TUTTI_OK;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                           "the list of byte strings is not contiguous; pass a whole array");
}

TUTTIF_API void tuttif_all_gather_bytes(const CFI_cdesc_t *out, const CFI_cdesc_t *text, const tuttif_group *group,
                                        const int64_t *timeout_ms, int *stat)
{
    const tutti_opts opts = tuttif_options(group, NULL, timeout_ms, NULL);
    int status = check_list(out);
    if (status == TUTTI_OK)
        status = tutti_all_gather_bytes(out->base_addr, tuttif_length(out), bytes_of(text), text->elem_len, &opts);
    tuttif_finish("tutti_all_gather_bytes", status, stat);
}

TUTTIF_API void tuttif_gather_bytes(const CFI_cdesc_t *out, const CFI_cdesc_t *text, int root,
                                    const tuttif_group *group, const int64_t *timeout_ms, const bool *group_rank,
                                    int *stat)
{
    const tutti_opts opts = tuttif_options(group, NULL, timeout_ms, group_rank);
    int status = check_list(out);
    if (status == TUTTI_OK)
        status = tutti_gather_bytes(out->base_addr, tuttif_length(out), bytes_of(text), text->elem_len, root, &opts);
    tuttif_finish("tutti_gather_bytes", status, stat);
}

/* True if this rank is the root of a call with these options. */
static bool is_root_of(int root, const tutti_opts *opts)
{
    int mine = tutti_get_rank(opts->group);
    return root == (opts->group_rank ? mine : tutti_get_global_rank(opts->group, mine));
}

/* Broadcasts root's text.  *out is what the library allocated; empty on the root. */
TUTTIF_API void tuttif_broadcast_bytes(tutti_bytes *out, bool *is_root, const CFI_cdesc_t *text, int root,
                                       const tuttif_group *group, const int64_t *timeout_ms, const bool *group_rank,
                                       int *stat)
{
    const tutti_opts opts = tuttif_options(group, NULL, timeout_ms, group_rank);
    tutti_bytes inout = {NULL, 0};
    *is_root = is_root_of(root, &opts);
    if (*is_root) inout = (tutti_bytes){(void *)(uintptr_t)bytes_of(text), text->elem_len};
    int status = tutti_broadcast_bytes(&inout, root, &opts);
    *out = status == TUTTI_OK && !*is_root ? inout : (tutti_bytes){NULL, 0};
    tuttif_finish("tutti_broadcast_bytes", status, stat);
}

TUTTIF_API void tuttif_scatter_bytes(tutti_bytes *out, const CFI_cdesc_t *in, int root, const tuttif_group *group,
                                     const int64_t *timeout_ms, const bool *group_rank, int *stat)
{
    const tutti_opts opts = tuttif_options(group, NULL, timeout_ms, group_rank);
    TUTTIF_HELD void *held;
    const tutti_bytes *list = tuttif_elements(in, &held);
    *out = (tutti_bytes){NULL, 0};
    tuttif_finish("tutti_scatter_bytes", tutti_scatter_bytes(out, list, tuttif_length(in), root, &opts), stat);
}

TUTTIF_API void tuttif_bytes_free(const CFI_cdesc_t *values)
{
    tutti_bytes_free(values->base_addr, tuttif_length(values));
}
