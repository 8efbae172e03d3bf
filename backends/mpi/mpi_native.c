/* Collectives by MPI's own nonblocking ones.
 *
 * What MPI does not have, or what it would take copies for, is refused before it has begun, and the core builds it from
 * messages: lists (a tensor a rank, each somewhere else), splits, AVG, PREMUL_SUM, more than a GiB.  A refusal must
 * follow from what all ranks have alike.
 *
 * MPI does not look whether the ranks' calls are the same; where they are not it waits for ever, writes other data than
 * were asked for, or crashes.  So the core has the ranks compare first.
 */
#include <stdlib.h>
#include <string.h>

#include "mpib.h"

/* A gibibyte: MPI counts with int, and inside it more than the arguments may be an int. */
#define NATIVE_MOST (INT64_C(1) << 30)

struct call {
    const void *in; /* may be MPI_IN_PLACE */
    void *out;
    int count; /* elements of a part, where there are parts; else of the whole */
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

/* From how many bytes of the whole operation MPI's own collective is taken.
 *
 * MPI builds a schedule for each call, and comparing the ranks' calls first takes a barrier.  So MPI's own pays where
 * it is much faster, the data are large, and few ranks wait for each other in the barrier.  Measured with Open MPI
 * (docs/benchmarks/mpi.md), broadcast costs nothing then, and may be better on another machine.  all_to_all is not
 * taken: in place it needs a copy of all the input.
 *
 * MPICH's broadcast is never taken.  From some KiB on, if the root is not rank 0, MPI_Ibcast (4.0.2) writes into the
 * root's tensor what it holds already.  If that memory is read-only, such as mapped weights, the job dies; threads that
 * read it meanwhile may see half of what is written.
 *
 * TUTTI_MPI_NATIVE=1 takes MPI's wherever there is one, for an MPI whose network does collectives; 0 never. */
#ifdef OPEN_MPI
#define BROADCAST_KEEPS_ROOT true
#else
#define BROADCAST_KEEPS_ROOT false
#endif
#define FROM_LARGE (4 << 20)
#define RANKS_MOST 4
#define ELEMENT_MOST 16
#define FROM_NEVER INT64_MAX

/* `parts`: which side has a part for each rank.  `place`: where in and out may be the same memory, as a whole or as far
 * as this rank's part goes, so that MPI_IN_PLACE is for `in` (SLICE_OUT) or for `out` (SLICE_IN). */
static const struct kind {
    int (*start)(const struct call *call, MPI_Request *request);
    int64_t from;
    bool reduces, in_parts, out_parts;
    enum { PLACE_NEVER, PLACE_WHOLE, PLACE_SLICE_OUT, PLACE_SLICE_IN } place;
} kinds[TUTTI_KIND_COUNT] = {
    [TUTTI_BROADCAST] = {BROADCAST_KEEPS_ROOT ? start_broadcast : NULL, FROM_LARGE, false, false, false, PLACE_NEVER},
    [TUTTI_ALL_REDUCE] = {start_all_reduce, FROM_NEVER, true, false, false, PLACE_WHOLE},
    [TUTTI_REDUCE] = {start_reduce, FROM_NEVER, true, false, false, PLACE_WHOLE},
    [TUTTI_ALL_GATHER] = {start_all_gather, FROM_NEVER, false, false, true, PLACE_SLICE_OUT},
    [TUTTI_GATHER] = {start_gather, FROM_NEVER, false, false, true, PLACE_SLICE_OUT},
    [TUTTI_SCATTER] = {start_scatter, FROM_NEVER, false, true, false, PLACE_SLICE_IN},
    [TUTTI_REDUCE_SCATTER] = {start_reduce_scatter, FROM_NEVER, true, true, false, PLACE_NEVER},
    [TUTTI_ALL_TO_ALL] = {start_all_to_all, FROM_NEVER, false, true, true, PLACE_NEVER},
};

/* Elements of the whole, the same on all ranks. */
static int64_t whole_of(const struct mpib_group *group, const tutti_op *op)
{
    const tutti_tensor *in = op->n_in > 0 ? op->in : NULL, *out = op->n_out > 0 ? op->out : NULL;
    const struct kind *kind = &kinds[op->kind];
    if (kind->in_parts && kind->out_parts) return in->numel;
    if (kind->out_parts) return in->numel * group->world_size;
    if (kind->in_parts) return out->numel * group->world_size;
    return out != NULL ? out->numel : in->numel;
}

static bool is_for_mpi(const struct mpib_group *group, const tutti_op *op)
{
    const struct kind *kind = &kinds[op->kind];
    if (op->list || op->in_splits != NULL || mpib_type(op->dtype) == MPI_DATATYPE_NULL) return false;
    if (kind->reduces && mpib_reduce(op->reduce_op) == MPI_OP_NULL) return false;
    int64_t whole = whole_of(group, op), element = tutti_dtype_bytes(op->dtype);
    if (whole <= 0 || whole > NATIVE_MOST / element) return false;
    return group->native == MPIB_NATIVE_ALWAYS || whole * element >= kind->from;
}

/* Nearly all operations are not: those find that out here. */
static inline bool may_be_for_mpi(const struct mpib_group *group, const tutti_op *op)
{
    if (group->family == NULL || group->native == MPIB_NATIVE_NEVER) return false;
    if (group->native == MPIB_NATIVE_ALWAYS) return true;
    const tutti_tensor *one = op->n_out > 0 ? op->out : op->in; /* the whole has at most so many bytes: */
    return group->world_size <= RANKS_MOST && one->numel >= kinds[op->kind].from / (RANKS_MOST * ELEMENT_MOST);
}

static bool overlap(const char *a, int64_t na, const char *b, int64_t nb)
{
    return a < b + nb && b < a + na;
}

/* MPI does not let in and out be the same memory, but has a word for the usual case; in the others it gets a copy of
 * the input.  *copy is to be freed at the end. */
static int place(const struct mpib_group *group, const tutti_op *op, struct call *call, void **copy)
{
    if (op->n_in == 0 || op->n_out == 0) return TUTTI_OK;
    int64_t element = tutti_dtype_bytes(op->dtype), slice = call->count * element * group->rank;
    int64_t in_bytes = op->in->numel * element, out_bytes = op->out->numel * element;
    char *in = op->in->data, *out = op->out->data;
    if (!overlap(in, in_bytes, out, out_bytes)) return TUTTI_OK;
    switch (kinds[op->kind].place) {
    case PLACE_WHOLE:
        if (in == out) call->in = MPI_IN_PLACE;
        break;
    case PLACE_SLICE_OUT:
        if (in == out + slice) call->in = MPI_IN_PLACE;
        break;
    case PLACE_SLICE_IN:
        if (out == in + slice) call->out = MPI_IN_PLACE;
        break;
    case PLACE_NEVER:
        break;
    }
    if (call->in == MPI_IN_PLACE || call->out == MPI_IN_PLACE) return TUTTI_OK;
    *copy = malloc((size_t)in_bytes);
    if (*copy == NULL) return group->family->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a copy of the input");
    call->in = memcpy(*copy, in, (size_t)in_bytes);
    return TUTTI_OK;
}

static struct call call_of(const struct mpib_group *group, const tutti_op *op)
{
    struct call call = {.comm = group->comm, .root = op->root};
    int64_t whole = whole_of(group, op);
    bool parts = kinds[op->kind].in_parts || kinds[op->kind].out_parts;
    call.in = op->n_in > 0 ? op->in->data : NULL;
    call.out = op->n_out > 0 ? op->out->data : NULL;
    call.count = (int)(parts ? whole / group->world_size : whole);
    call.type = mpib_type(op->dtype);
    call.reduce = kinds[op->kind].reduces ? mpib_reduce(op->reduce_op) : MPI_OP_NULL;
    return call;
}

/* Apart, so that the way of all others is short. */
__attribute__((noinline)) static int start_native(struct mpib_group *group, const tutti_op *op, tutti_request *request)
{
    if (!is_for_mpi(group, op)) return TUTTI_ERR_UNSUPPORTED;
    if ((request->flags & TUTTI_REQUEST_COMPARED) == 0) return TUTTI_REQUEST_COMPARE;
    struct mpib_family *family = group->family;
    struct mpib_flight flight = {.request = request, .group = group};
    struct call call = call_of(group, op);
    MPI_Request handle = MPI_REQUEST_NULL;
    int status = mpib_flights_reserve(family, 1);
    if (status == TUTTI_OK) status = place(group, op, &call, &flight.memory);
    if (status == TUTTI_OK && !mpib_enter())
        status = family->host->error(TUTTI_ERR_BACKEND, "the program started MPI for its main thread alone");
    if (status != TUTTI_OK) {
        free(flight.memory);
        return status;
    }
    int error = kinds[op->kind].start(&call, &handle);
    mpib_leave();
    if (error != MPI_SUCCESS) {
        free(flight.memory);
        return mpib_error(family->host, "a collective of MPI", error);
    }
    request->peer = (group->rank + 1) % group->world_size; /* whom to ask when it takes long */
    mpib_flights_add(family, handle, &flight);
    family->moved = true;
    return TUTTI_REQUEST_PENDING;
}

static int native(void *state, const tutti_op *op, tutti_request *request)
{
    return may_be_for_mpi(state, op) ? start_native(state, op, request) : TUTTI_ERR_UNSUPPORTED;
}

/* What is never for MPI gets no entry, so that nobody asks. */
void mpib_native_fill(enum mpib_native way, tutti_backend *table)
{
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++) {
        bool measured = way == MPIB_NATIVE_MEASURED && kinds[kind].from != FROM_NEVER;
        if (kinds[kind].start != NULL && (way == MPIB_NATIVE_ALWAYS || measured)) table->native[kind] = native;
    }
}
