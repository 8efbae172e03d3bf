/* Collectives that use MPI's own nonblocking ones.
 *
 * Operations that MPI lacks, or would need copies for, are refused before they start; the core then builds them from
 * messages.  These are lists (one tensor per rank), splits, AVG, PREMUL_SUM, and more than 1 GiB.  A refusal may depend
 * only on what is equal on all ranks.
 *
 * MPI does not check that the ranks' calls agree.  If they differ it hangs, writes wrong data or crashes, so the core
 * first compares the calls.
 */
#include <stdlib.h>
#include <string.h>

#include "mpib.h"

/* 1 GiB: MPI counts in int, and may exceed the arguments internally. */
#define NATIVE_MAX (INT64_C(1) << 30)

struct call {
    const void *in; /* may be MPI_IN_PLACE */
    void *out;
    int count; /* elements of one block if the operation has blocks, else of the whole tensor */
    int root;
    MPI_Datatype type;
    MPI_Op reduce;
    MPI_Comm comm;
};

static int start_broadcast(const struct call *c, MPI_Request *request)
{
    return MPI_Ibcast(c->out, c->count, c->type, c->root, c->comm, request);
}

static int start_all_reduce(const struct call *c, MPI_Request *request)
{
    return MPI_Iallreduce(c->in, c->out, c->count, c->type, c->reduce, c->comm, request);
}

static int start_scan(const struct call *c, MPI_Request *request)
{
    return MPI_Iscan(c->in, c->out, c->count, c->type, c->reduce, c->comm, request);
}

static int start_exscan(const struct call *c, MPI_Request *request)
{
    static char unused; /* rank 0 has no output, but MPICH refuses NULL */
    void *out = c->out != NULL ? c->out : &unused;
    return MPI_Iexscan(c->in, out, c->count, c->type, c->reduce, c->comm, request);
}

static int start_reduce(const struct call *c, MPI_Request *request)
{
    return MPI_Ireduce(c->in, c->out, c->count, c->type, c->reduce, c->root, c->comm, request);
}

static int start_all_gather(const struct call *c, MPI_Request *request)
{
    return MPI_Iallgather(c->in, c->count, c->type, c->out, c->count, c->type, c->comm, request);
}

static int start_gather(const struct call *c, MPI_Request *request)
{
    return MPI_Igather(c->in, c->count, c->type, c->out, c->count, c->type, c->root, c->comm, request);
}

static int start_scatter(const struct call *c, MPI_Request *request)
{
    return MPI_Iscatter(c->in, c->count, c->type, c->out, c->count, c->type, c->root, c->comm, request);
}

static int start_reduce_scatter(const struct call *c, MPI_Request *request)
{
    return MPI_Ireduce_scatter_block(c->in, c->out, c->count, c->type, c->reduce, c->comm, request);
}

static int start_all_to_all(const struct call *c, MPI_Request *request)
{
    return MPI_Ialltoall(c->in, c->count, c->type, c->out, c->count, c->type, c->comm, request);
}

/* Decides whether an operation is MPI's own collective, the only path of this backend's own, or a plan.
 *
 * A row that the core gave (tutti_backend.choose) counts first.  Otherwise the rows below do, in groups of at most
 * RANKS_MAX ranks.  A kind without a row is a plan.
 *
 * MPI builds a schedule for each call and reduces with simple algorithms, and comparing the calls costs as much as a
 * barrier.  Native collectives therefore pay only for large data and few ranks (docs/benchmarks/mpi.md).  MPI's
 * broadcast is used for more than PLAN_MAX bytes, where it costs nothing and may know the network better.  Its
 * all_to_all is not: in place it needs a copy of the whole input.
 *
 * MPICH's broadcast is never used.  If the root is not rank 0, MPI_Ibcast (4.0.2) writes into the root's own tensor,
 * with the data it already holds.  That kills the job if the memory is read-only, for example mapped weights, and other
 * readers may see partial writes.
 *
 * TUTTI_MPI_NATIVE=1 uses MPI's collectives wherever possible, for an MPI whose network offloads them; 0 never does.
 */
#ifdef OPEN_MPI
#define BROADCAST_KEEPS_ROOT true
#else
#define BROADCAST_KEEPS_ROOT false
#endif
#define PLAN_MAX ((4 << 20) - 1)
#define RANKS_MAX 4
#define ELEMENT_MAX 16

enum { PATH_NATIVE };

static const tutti_path_row rows[] = {{TUTTI_BROADCAST, TUTTI_PATH_PLAN, PLAN_MAX},
                                      {TUTTI_BROADCAST, PATH_NATIVE, INT64_MAX}};

enum { N_ROWS = sizeof rows / sizeof *rows };

const tutti_path mpib_paths[] = {
#ifdef OPEN_MPI
    {TUTTI_BROADCAST, PATH_NATIVE, "native"},
#endif
    {TUTTI_ALL_REDUCE, PATH_NATIVE, "native"}, {TUTTI_REDUCE, PATH_NATIVE, "native"},
    {TUTTI_ALL_GATHER, PATH_NATIVE, "native"}, {TUTTI_GATHER, PATH_NATIVE, "native"},
    {TUTTI_SCATTER, PATH_NATIVE, "native"},    {TUTTI_REDUCE_SCATTER, PATH_NATIVE, "native"},
    {TUTTI_ALL_TO_ALL, PATH_NATIVE, "native"}, {TUTTI_SCAN, PATH_NATIVE, "native"},
    {TUTTI_EXSCAN, PATH_NATIVE, "native"},     {TUTTI_BARRIER, PATH_NATIVE, NULL},
};

/* The kinds that MPI can do.  `place` says which argument MPI_IN_PLACE replaces if the operation is done in place. */
static const struct native {
    int (*start)(const struct call *call, MPI_Request *request);
    enum { PLACE_NEVER, PLACE_IN, PLACE_OUT } place;
} natives[TUTTI_KIND_COUNT] = {
    [TUTTI_BROADCAST] = {BROADCAST_KEEPS_ROOT ? start_broadcast : NULL, PLACE_NEVER},
    [TUTTI_ALL_REDUCE] = {start_all_reduce, PLACE_IN},
    [TUTTI_REDUCE] = {start_reduce, PLACE_IN},
    [TUTTI_ALL_GATHER] = {start_all_gather, PLACE_IN},
    [TUTTI_GATHER] = {start_gather, PLACE_IN},
    [TUTTI_SCATTER] = {start_scatter, PLACE_OUT},
    [TUTTI_REDUCE_SCATTER] = {start_reduce_scatter, PLACE_NEVER},
    [TUTTI_ALL_TO_ALL] = {start_all_to_all, PLACE_NEVER},
    [TUTTI_SCAN] = {start_scan, PLACE_IN},
    [TUTTI_EXSCAN] = {start_exscan, PLACE_IN},
};

/* Returns the elements of the whole tensor, the same on all ranks. */
static int64_t whole_numel(const struct mpib_group *group, const tutti_op *op)
{
    int64_t block = tutti_op_block_numel(op, group->world_size);
    return tutti_kind_has_blocks(op->kind) ? block * group->world_size : block;
}

static bool is_chosen(const struct mpib_group *group, tutti_kind kind, int64_t bytes)
{
    const tutti_path_row *row = tutti_path_find(group->choices, group->n_choices, kind, bytes);
    if (row != NULL) return row->path == PATH_NATIVE;
    if (group->native == MPIB_NATIVE_ALWAYS) return true;
    row = group->world_size <= RANKS_MAX ? tutti_path_find(rows, N_ROWS, kind, bytes) : NULL;
    return row != NULL && row->path == PATH_NATIVE;
}

static bool is_suitable(const struct mpib_group *group, const tutti_op *op)
{
    if (op->list || op->in_splits != NULL || mpib_type(op->dtype) == MPI_DATATYPE_NULL) return false;
    if (tutti_kind_reduces(op->kind) && mpib_reduce(op->reduce_op) == MPI_OP_NULL) return false;
    int64_t whole = whole_numel(group, op), element = tutti_dtype_bytes(op->dtype);
    if (whole <= 0 || whole > NATIVE_MAX / element) return false;
    return is_chosen(group, op->kind, whole * element);
}

/* False for nearly all operations, after a quick test. */
static inline bool may_be_suitable(const struct mpib_group *group, const tutti_op *op)
{
    if (group->tree == NULL || group->native == MPIB_NATIVE_NEVER) return false;
    if (group->native == MPIB_NATIVE_ALWAYS || group->n_choices > 0) return true;
    const tutti_tensor *largest =
        op->n_out > 0 ? op->out : op->in; /* an upper bound of the whole tensor's bytes is enough here */
    return group->world_size <= RANKS_MAX && largest->numel > PLAN_MAX / (RANKS_MAX * ELEMENT_MAX);
}

static bool overlap(const char *a, int64_t na, const char *b, int64_t nb)
{
    return a < b + nb && b < a + na;
}

/* Chooses the arguments of the MPI call.  MPI forbids in and out to share memory, but offers MPI_IN_PLACE for the usual
 * case.  In other cases the call reads a copy of the input; the caller frees *copy at the end. */
static int resolve_aliasing(const struct mpib_group *group, const tutti_op *op, struct call *call, void **copy)
{
    if (op->n_in == 0 || op->n_out == 0) return TUTTI_OK;
    int64_t element = tutti_dtype_bytes(op->dtype);
    int64_t in_bytes = op->in->numel * element, out_bytes = op->out->numel * element;
    char *in = op->in->data, *out = op->out->data;
    if (!overlap(in, in_bytes, out, out_bytes)) return TUTTI_OK;
    if (natives[op->kind].place != PLACE_NEVER && tutti_op_is_in_place(op, group->rank)) {
        if (natives[op->kind].place == PLACE_IN) call->in = MPI_IN_PLACE;
        if (natives[op->kind].place == PLACE_OUT) call->out = MPI_IN_PLACE;
        return TUTTI_OK;
    }
    *copy = malloc((size_t)in_bytes);
    if (*copy == NULL)
        return group->tree->host->error(TUTTI_ERR_NO_MEMORY, "out of memory for a copy of the %lld bytes of input",
                                        (long long)in_bytes);
    call->in = memcpy(*copy, in, (size_t)in_bytes);
    return TUTTI_OK;
}

static struct call make_call(const struct mpib_group *group, const tutti_op *op)
{
    struct call call = {.comm = group->comm, .root = op->root};
    call.in = op->n_in > 0 ? op->in->data : NULL;
    call.out = op->n_out > 0 ? op->out->data : NULL;
    call.count = (int)tutti_op_block_numel(op, group->world_size);
    call.type = mpib_type(op->dtype);
    call.reduce = tutti_kind_reduces(op->kind) ? mpib_reduce(op->reduce_op) : MPI_OP_NULL;
    return call;
}

/* Kept out of line so that the path of all other operations is short. */
__attribute__((noinline)) static int start_native(struct mpib_group *group, const tutti_op *op, tutti_request *request)
{
    if (!is_suitable(group, op)) return TUTTI_ERR_UNSUPPORTED;
    if ((request->flags & TUTTI_REQUEST_COMPARED) == 0) return TUTTI_REQUEST_COMPARE;
    struct mpib_tree *tree = group->tree;
    struct mpib_pending pending = {.request = request, .group = group};
    struct call call = make_call(group, op);
    MPI_Request handle = MPI_REQUEST_NULL;
    int status = mpib_pending_reserve(tree, 1);
    if (status == TUTTI_OK) status = resolve_aliasing(group, op, &call, &pending.memory);
    if (status == TUTTI_OK && !mpib_enter())
        status = tree->host->error(TUTTI_ERR_BACKEND, "the program started MPI for its main thread only; call Tutti "
                                                      "from that thread, or use MPI_THREAD_MULTIPLE");
    if (status != TUTTI_OK) {
        free(pending.memory);
        return status;
    }
    int error = natives[op->kind].start(&call, &handle);
    mpib_leave();
    if (error != MPI_SUCCESS) {
        free(pending.memory);
        return mpib_error(tree->host, "nonblocking collective of MPI", error);
    }
    request->peer = (group->rank + 1) % group->world_size; /* the peer to ask if the operation takes long */
    mpib_pending_add(tree, handle, &pending);
    if (tree->counters != NULL) tutti_traffic_count(&tree->counters->library, op);
    tree->has_moved = true;
    return TUTTI_REQUEST_PENDING;
}

static int start_if_suitable(void *state, const tutti_op *op, tutti_request *request)
{
    return may_be_suitable(state, op) ? start_native(state, op, request) : TUTTI_ERR_UNSUPPORTED;
}

const char *mpib_explain(void *state, const tutti_op *op)
{
    return may_be_suitable(state, op) && is_suitable(state, op) ? "native: by MPI's own collective" : NULL;
}

void mpib_choose(void *state, const tutti_path_row *choices, int32_t n)
{
    struct mpib_group *group = state;
    group->choices = choices;
    group->n_choices = n;
}

/* Operations that never use MPI's collectives get no entry, so the core does not ask. */
void mpib_native_fill(enum mpib_native way, bool is_named, tutti_backend *table)
{
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++) {
        bool may = way == MPIB_NATIVE_ALWAYS || is_named || tutti_path_find(rows, N_ROWS, (tutti_kind)kind, 0) != NULL;
        if (natives[kind].start != NULL && way != MPIB_NATIVE_NEVER && may) table->native[kind] = start_if_suitable;
    }
}
