#include "reducer_scheme.h"

#include "blocks.h"
#include "reducer_residual.h"

/* Returns the op of the gradients' all_reduce. */
static tutti_reduce_op op_of(const struct tutti_reducer *reducer)
{
    return reducer->opts.sum || reducer->opts.divide_by_active ? TUTTI_SUM : TUTTI_AVG;
}

static int start_plain(struct tutti_reducer *reducer, struct bucket *bucket, int phase, tutti_work **work)
{
    tutti_opts opts = reducer_opts(reducer, work);
    (void)phase;
    reducer->bytes += reducer_tensor_bytes(bucket->wire);
    return tutti_all_reduce(bucket->wire, op_of(reducer), &opts);
}

/* Starts the all_reduces of a bucket's gradients, which are in the program's memory, as one operation. */
static int start_in_place(struct tutti_reducer *reducer, struct bucket *bucket, int phase, tutti_work **work)
{
    tutti_opts opts = reducer_opts(reducer, NULL);
    int status = tutti_coalesce_begin(reducer->group);
    (void)phase;
    if (status != TUTTI_OK) return status;
    for (int i = 0; i < bucket->view.n && status == TUTTI_OK; i++) {
        tutti_tensor gradient = reducer->parameter[bucket->view.parameter[i]].gradient;
        reducer->bytes += reducer_tensor_bytes(gradient);
        status = tutti_all_reduce(gradient, op_of(reducer), &opts);
    }
    int end = tutti_coalesce_end(reducer->group, work);
    return status != TUTTI_OK ? status : end;
}

static int start_hook(struct tutti_reducer *reducer, struct bucket *bucket, int phase, tutti_work **work)
{
    return reducer->opts.hook(&bucket->view, phase, reducer->opts.hook_argument, work);
}

/* Calls the hook's last phase.  A Work that it starts against its contract is waited for. */
static int finish_hook(struct tutti_reducer *reducer, struct bucket *bucket)
{
    tutti_work *work = NULL;
    int status = start_hook(reducer, bucket, reducer->opts.hook_phases, &work);
    if (work != NULL && status == TUTTI_OK) return tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT);
    tutti_work_free(work);
    return status;
}

/* True if elements are divided by the number of ranks before they are summed, because the sum may exceed the range of
 * float16. */
static bool divides_before(const struct tutti_reducer *reducer, tutti_dtype wire)
{
    return wire == TUTTI_FLOAT16 && !reducer->opts.sum;
}

static int start_cast(struct tutti_reducer *reducer, struct bucket *bucket, int phase, tutti_work **work)
{
    tutti_opts opts = reducer_opts(reducer, work);
    bool divides = divides_before(reducer, bucket->wire.dtype);
    (void)phase;
    opts.factor = 1.0 / reducer->size;
    reducer->bytes += reducer_tensor_bytes(bucket->wire);
    return tutti_all_reduce(bucket->wire, divides ? TUTTI_PREMUL_SUM : op_of(reducer), &opts);
}

/* ---- float8 ------------------------------------------------------------------------------------------------ */

/* Float8 with a scale per block cannot be added by a transport.  So each rank gets its part of all ranks' vectors, adds
 * them in float32, and sends the sum to all.  The bytes are those of an all_reduce.  A bucket's wire has an outgoing
 * vector, which also receives the result, and then an incoming one. */
static struct blocks shape_of(const struct tutti_reducer *reducer, const struct bucket *bucket)
{
    return blocks_of(bucket->view.tensor.numel, reducer->size);
}

static int start_exchange(struct tutti_reducer *reducer, struct bucket *bucket, tutti_work **work)
{
    struct blocks shape = shape_of(reducer, bucket);
    int64_t bytes = blocks_part_bytes(shape) * reducer->size;
    uint8_t *outgoing = bucket->wire.data;
    tutti_opts opts = reducer_opts(reducer, work);
    blocks_encode(shape, bucket->view.tensor, outgoing);
    residual_of_blocks(reducer, bucket);
    reducer->bytes += bytes;
    return tutti_all_to_all_single(tutti_view(outgoing + bytes, bytes), tutti_view(outgoing, bytes), NULL, NULL, &opts);
}

static int start_blocks(struct tutti_reducer *reducer, struct bucket *bucket, int phase, tutti_work **work)
{
    struct blocks shape = shape_of(reducer, bucket);
    int64_t part_bytes = blocks_part_bytes(shape), bytes = part_bytes * reducer->size;
    uint8_t *result = bucket->wire.data, *own = result + part_bytes * reducer->rank;
    tutti_opts opts = reducer_opts(reducer, work);
    if (phase == 0) return start_exchange(reducer, bucket, work);
    residual_sum_blocks(reducer, bucket, result + bytes, own);
    return tutti_all_gather_into_tensor(tutti_view(result, bytes), tutti_view(own, part_bytes), &opts);
}

/* ---- choice ------------------------------------------------------------------------------------------------ */

static const struct scheme plain = {.phases = 1, .start = start_plain, .averages = true};
static const struct scheme in_place = {.phases = 1, .start = start_in_place, .averages = true};
static const struct scheme cast = {.phases = 1, .start = start_cast, .averages = true};
static const struct scheme blocks = {.phases = 2, .start = start_blocks};
static const struct scheme hook = {.phases = 0, .start = start_hook, .finish = finish_hook};

const struct scheme *scheme_of(const struct tutti_reducer *reducer, tutti_tensor gradient)
{
    bool may_compress = gradient.dtype == TUTTI_FLOAT32 || gradient.dtype == TUTTI_FLOAT64;
    if (gradient.device.type != TUTTI_CPU) return &in_place;
    if (reducer->opts.hook != NULL) return &hook;
    if (reducer->opts.compress == 0 || !may_compress) return &plain;
    return reducer->opts.compress == TUTTI_FLOAT8_E4M3FN ? &blocks : &cast;
}

int scheme_phases(const struct tutti_reducer *reducer, const struct scheme *scheme)
{
    return scheme->phases > 0 ? scheme->phases : reducer->opts.hook_phases;
}

bool scheme_casts(const struct scheme *scheme)
{
    return scheme == &cast;
}

bool scheme_has_blocks(const struct scheme *scheme)
{
    return scheme == &blocks;
}

bool scheme_needs_bucket(const struct tutti_reducer *reducer, const struct scheme *scheme)
{
    return scheme != &in_place && (!scheme_casts(scheme) || reducer_has_views(reducer));
}

tutti_tensor scheme_wire(const struct tutti_reducer *reducer, const struct scheme *scheme, int64_t numel, void *memory)
{
    tutti_tensor none = {NULL, 0, TUTTI_UINT8, {TUTTI_CPU, 0}};
    if (scheme_casts(scheme)) return tutti_tensor_of(memory, numel, reducer->opts.compress);
    if (!scheme_has_blocks(scheme)) return none;
    return tutti_tensor_of(memory, 2 * reducer->size * blocks_part_bytes(blocks_of(numel, reducer->size)), TUTTI_UINT8);
}

int64_t scheme_wire_bytes_of_part(const struct scheme *scheme, int64_t numel)
{
    if (scheme_casts(scheme)) return 2 * numel;
    return scheme_has_blocks(scheme) ? 2 * (numel + numel / BLOCKS_NUMEL + 1) : 0;
}

int64_t scheme_wire_padding(const struct tutti_reducer *reducer)
{
    return reducer->opts.compress == TUTTI_FLOAT8_E4M3FN ? 2 * BLOCKS_BYTES * ((int64_t)reducer->size + 1) : 0;
}

double scheme_divisor(const struct tutti_reducer *reducer, const struct scheme *scheme)
{
    if (reducer->opts.sum) return 1;
    double divided = scheme_casts(scheme) && divides_before(reducer, reducer->opts.compress) ? reducer->size : 1;
    if (reducer->opts.divide_by_active) return reducer->active > 0 ? reducer->active / divided : 1;
    return scheme->averages ? 1 : reducer->size;
}
