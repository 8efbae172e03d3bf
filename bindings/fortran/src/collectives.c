/* Fortran module: collectives.  Each function is tutti.h's of the same name. */
#include "convert.h"

/* The tensors of a call.  `out` may be absent. */
struct pair {
    tutti_tensor out, in;
};

static int describe(struct pair *pair, const CFI_cdesc_t *out, const CFI_cdesc_t *in, const tuttif_dtype *dtype)
{
    int status = tuttif_tensor(in, dtype, "in", &pair->in);
    return status < 0 ? status : tuttif_tensor_like(out, dtype, "out", pair->in, &pair->out);
}

/* As describe, where the input may be absent. */
static int describe_out(struct pair *pair, const CFI_cdesc_t *out, const CFI_cdesc_t *in, const tuttif_dtype *dtype)
{
    int status = tuttif_tensor(out, dtype, "out", &pair->out);
    return status < 0 ? status : tuttif_tensor_like(in, dtype, "in", pair->out, &pair->in);
}

TUTTIF_API void tuttif_broadcast(const CFI_cdesc_t *x, int root, TUTTIF_OPTIONS)
{
    const tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    tutti_tensor tensor;
    int status = tuttif_tensor(x, dtype, "x", &tensor);
    if (status == TUTTI_OK) status = tutti_broadcast(tensor, root, &opts);
    tuttif_finish("tutti_broadcast", status, stat);
}

/* ---- reductions -------------------------------------------------------------------------------------------- */

#define TUTTIF_REDUCTION(name)                                                                                         \
    TUTTIF_API void tuttif_##name(const CFI_cdesc_t *x, const tuttif_reduce_op *op, const double *factor,              \
                                  TUTTIF_OPTIONS)                                                                      \
    {                                                                                                                  \
        tutti_opts opts = tuttif_options(TUTTIF_GIVEN);                                                                \
        tutti_tensor tensor;                                                                                           \
        if (factor != NULL) opts.factor = *factor;                                                                     \
        int status = tuttif_tensor(x, dtype, "x", &tensor);                                                            \
        if (status == TUTTI_OK) status = tutti_##name(tensor, (tutti_reduce_op)op->value, &opts);                      \
        tuttif_finish("tutti_" #name, status, stat);                                                                   \
    }                                                                                                                  \
    TUTTIF_API void tuttif_##name##_into(const CFI_cdesc_t *out, const CFI_cdesc_t *in, const tuttif_reduce_op *op,    \
                                         const double *factor, TUTTIF_OPTIONS)                                         \
    {                                                                                                                  \
        tutti_opts opts = tuttif_options(TUTTIF_GIVEN);                                                                \
        struct pair pair;                                                                                              \
        if (factor != NULL) opts.factor = *factor;                                                                     \
        int status = describe(&pair, out, in, dtype);                                                                  \
        if (status == TUTTI_OK) status = tutti_##name##_into(pair.out, pair.in, (tutti_reduce_op)op->value, &opts);    \
        tuttif_finish("tutti_" #name "_into", status, stat);                                                           \
    }
TUTTIF_REDUCTION(all_reduce)
TUTTIF_REDUCTION(scan)
TUTTIF_REDUCTION(exscan)

TUTTIF_API void tuttif_reduce(const CFI_cdesc_t *x, int root, const tuttif_reduce_op *op, const double *factor,
                              TUTTIF_OPTIONS)
{
    tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    tutti_tensor tensor;
    if (factor != NULL) opts.factor = *factor;
    int status = tuttif_tensor(x, dtype, "x", &tensor);
    if (status == TUTTI_OK) status = tutti_reduce(tensor, root, (tutti_reduce_op)op->value, &opts);
    tuttif_finish("tutti_reduce", status, stat);
}

TUTTIF_API void tuttif_reduce_into(const CFI_cdesc_t *out, const CFI_cdesc_t *in, int root, const tuttif_reduce_op *op,
                                   const double *factor, TUTTIF_OPTIONS)
{
    tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    struct pair pair;
    if (factor != NULL) opts.factor = *factor;
    int status = describe(&pair, out, in, dtype);
    if (status == TUTTI_OK) status = tutti_reduce_into(pair.out, pair.in, root, (tutti_reduce_op)op->value, &opts);
    tuttif_finish("tutti_reduce_into", status, stat);
}

TUTTIF_API void tuttif_reduce_scatter_tensor(const CFI_cdesc_t *out, const CFI_cdesc_t *in, const tuttif_reduce_op *op,
                                             const double *factor, TUTTIF_OPTIONS)
{
    tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    struct pair pair;
    if (factor != NULL) opts.factor = *factor;
    int status = describe(&pair, out, in, dtype);
    if (status == TUTTI_OK) status = tutti_reduce_scatter_tensor(pair.out, pair.in, (tutti_reduce_op)op->value, &opts);
    tuttif_finish("tutti_reduce_scatter_tensor", status, stat);
}

/* ---- parts of one tensor ----------------------------------------------------------------------------------- */

TUTTIF_API void tuttif_all_gather_into_tensor(const CFI_cdesc_t *out, const CFI_cdesc_t *in, TUTTIF_OPTIONS)
{
    const tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    struct pair pair;
    int status = describe(&pair, out, in, dtype);
    if (status == TUTTI_OK) status = tutti_all_gather_into_tensor(pair.out, pair.in, &opts);
    tuttif_finish("tutti_all_gather_into_tensor", status, stat);
}

TUTTIF_API void tuttif_gather_into_tensor(const CFI_cdesc_t *out, const CFI_cdesc_t *in, int root, TUTTIF_OPTIONS)
{
    const tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    struct pair pair;
    int status = describe(&pair, out, in, dtype);
    if (status == TUTTI_OK) status = tutti_gather_into_tensor(pair.out, pair.in, root, &opts);
    tuttif_finish("tutti_gather_into_tensor", status, stat);
}

TUTTIF_API void tuttif_scatter_tensor(const CFI_cdesc_t *out, const CFI_cdesc_t *in, int root, TUTTIF_OPTIONS)
{
    const tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    struct pair pair;
    int status = describe_out(&pair, out, in, dtype);
    if (status == TUTTI_OK) status = tutti_scatter_tensor(pair.out, pair.in, root, &opts);
    tuttif_finish("tutti_scatter_tensor", status, stat);
}

/* Checks that an array of splits has an entry for each rank of the group. */
static int check_splits(const CFI_cdesc_t *splits, const char *name, const tutti_opts *opts)
{
    int ranks = tutti_get_world_size(opts->group);
    if (splits == NULL || tuttif_length(splits) == ranks || ranks < 0) return TUTTI_OK;
    return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "%s has %d entries, but the group has %d ranks", name,
                           tuttif_length(splits), ranks);
}

TUTTIF_API void tuttif_all_to_all_single(const CFI_cdesc_t *out, const CFI_cdesc_t *in, const CFI_cdesc_t *out_splits,
                                         const CFI_cdesc_t *in_splits, TUTTIF_OPTIONS)
{
    const tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    TUTTIF_HELD void *held_out, *held_in;
    const int64_t *outs = tuttif_elements(out_splits, &held_out), *ins = tuttif_elements(in_splits, &held_in);
    struct pair pair;
    int status = describe(&pair, out, in, dtype);
    if (status == TUTTI_OK) status = check_splits(out_splits, "out_splits", &opts);
    if (status == TUTTI_OK) status = check_splits(in_splits, "in_splits", &opts);
    if (status == TUTTI_OK) status = tutti_all_to_all_single(pair.out, pair.in, outs, ins, &opts);
    tuttif_finish("tutti_all_to_all_single", status, stat);
}

/* ---- lists ------------------------------------------------------------------------------------------------- */

TUTTIF_API void tuttif_all_gather(const CFI_cdesc_t *out, const CFI_cdesc_t *in, TUTTIF_OPTIONS)
{
    const tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    TUTTIF_HELD void *held;
    const tutti_tensor *list = tuttif_elements(out, &held);
    tutti_tensor tensor;
    int status = tuttif_tensor(in, dtype, "in", &tensor);
    if (status == TUTTI_OK) status = tutti_all_gather(list, tuttif_length(out), tensor, &opts);
    tuttif_finish("tutti_all_gather", status, stat);
}

TUTTIF_API void tuttif_gather(const CFI_cdesc_t *in, const CFI_cdesc_t *out, int root, TUTTIF_OPTIONS)
{
    const tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    TUTTIF_HELD void *held;
    const tutti_tensor *list = tuttif_elements(out, &held);
    tutti_tensor tensor;
    int status = tuttif_tensor(in, dtype, "in", &tensor);
    if (status == TUTTI_OK) status = tutti_gather(tensor, list, tuttif_length(out), root, &opts);
    tuttif_finish("tutti_gather", status, stat);
}

TUTTIF_API void tuttif_scatter(const CFI_cdesc_t *out, const CFI_cdesc_t *in, int root, TUTTIF_OPTIONS)
{
    const tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    TUTTIF_HELD void *held;
    const tutti_tensor *list = tuttif_elements(in, &held);
    tutti_tensor tensor;
    int status = tuttif_tensor(out, dtype, "out", &tensor);
    if (status == TUTTI_OK) status = tutti_scatter(tensor, list, tuttif_length(in), root, &opts);
    tuttif_finish("tutti_scatter", status, stat);
}

TUTTIF_API void tuttif_reduce_scatter(const CFI_cdesc_t *out, const CFI_cdesc_t *in, const tuttif_reduce_op *op,
                                      const double *factor, TUTTIF_OPTIONS)
{
    tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    TUTTIF_HELD void *held;
    const tutti_tensor *list = tuttif_elements(in, &held);
    tutti_tensor tensor;
    if (factor != NULL) opts.factor = *factor;
    int status = tuttif_tensor(out, dtype, "out", &tensor);
    if (status == TUTTI_OK)
        status = tutti_reduce_scatter(tensor, list, tuttif_length(in), (tutti_reduce_op)op->value, &opts);
    tuttif_finish("tutti_reduce_scatter", status, stat);
}

TUTTIF_API void tuttif_all_to_all(const CFI_cdesc_t *out, const CFI_cdesc_t *in, TUTTIF_OPTIONS)
{
    const tutti_opts opts = tuttif_options(TUTTIF_GIVEN);
    TUTTIF_HELD void *held_out, *held_in;
    const tutti_tensor *outs = tuttif_elements(out, &held_out), *ins = tuttif_elements(in, &held_in);
    int status = TUTTI_OK;
    (void)dtype; /* each entry has its own */
    if (tuttif_length(out) != tuttif_length(in))
        status = tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "out has %d entries and in has %d; pass one per rank each",
                                 tuttif_length(out), tuttif_length(in));
    if (status == TUTTI_OK) status = tutti_all_to_all(outs, ins, tuttif_length(in), &opts);
    tuttif_finish("tutti_all_to_all", status, stat);
}

/* ---- barriers ---------------------------------------------------------------------------------------------- */

TUTTIF_API void tuttif_barrier(const tuttif_group *group, tuttif_work *work, const int64_t *timeout_ms, int *stat)
{
    const tutti_opts opts = tuttif_options(group, work, timeout_ms, NULL);
    tuttif_finish("tutti_barrier", tutti_barrier(&opts), stat);
}

TUTTIF_API void tuttif_monitored_barrier(const tuttif_group *group, const int64_t *timeout_ms, int *stat)
{
    const tutti_opts opts = tuttif_options(group, NULL, timeout_ms, NULL);
    tuttif_finish("tutti_monitored_barrier", tutti_monitored_barrier(&opts), stat);
}
