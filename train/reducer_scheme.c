#include "reducer_scheme.h"

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
    if (work != NULL && status == TUTTI_OK) status = tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT);
    return status;
}

static const struct scheme plain = {.phases = 1, .start = start_plain, .averages = true};
static const struct scheme in_place = {.phases = 1, .start = start_in_place, .averages = true};
static const struct scheme hook = {.phases = 0, .start = start_hook, .finish = finish_hook};

const struct scheme *scheme_of(const struct tutti_reducer *reducer, tutti_tensor gradient)
{
    if (gradient.device.type != TUTTI_CPU) return &in_place;
    if (reducer->opts.hook != NULL) return &hook;
    return &plain;
}

int scheme_phases(const struct tutti_reducer *reducer, const struct scheme *scheme)
{
    return scheme->phases > 0 ? scheme->phases : reducer->opts.hook_phases;
}

bool scheme_casts(const struct scheme *scheme)
{
    (void)scheme;
    return false;
}

bool scheme_needs_bucket(const struct tutti_reducer *reducer, const struct scheme *scheme)
{
    return scheme != &in_place && (!scheme_casts(scheme) || reducer_has_views(reducer));
}

int64_t scheme_wire_bytes(const struct tutti_reducer *reducer, const struct scheme *scheme, int64_t numel)
{
    (void)reducer, (void)scheme, (void)numel;
    return 0;
}

tutti_tensor scheme_wire(const struct tutti_reducer *reducer, const struct scheme *scheme, int64_t numel, void *memory)
{
    (void)reducer, (void)scheme;
    return tutti_tensor_of(memory, numel, TUTTI_UINT8);
}

int64_t scheme_wire_bytes_of_part(const struct scheme *scheme, int64_t numel)
{
    (void)scheme, (void)numel;
    return 0;
}

int64_t scheme_wire_padding(const struct tutti_reducer *reducer)
{
    (void)reducer;
    return 0;
}

double scheme_divisor(const struct tutti_reducer *reducer, const struct scheme *scheme)
{
    if (reducer->opts.sum) return 1;
    if (reducer->opts.divide_by_active) return reducer->active > 0 ? reducer->active : 1;
    return scheme->averages ? 1 : reducer->size;
}
