/* Calls each collective, and runs one case from its operands to its verdict. */
#include "conformance/collective.h"

#include <stdio.h>
#include <string.h>

#include "conformance/input.h"
#include "conformance/number.h"
#include "conformance/options.h"

int collective_call(struct rank *rank, const struct spec *spec, const struct operands *x, tutti_opts opts)
{
    const struct side *in = &x->in, *out = &x->out;
    bool by_group = rank->seed >> 8 & 1;
    int root = x->root < 0 || by_group ? x->root : tutti_get_global_rank(opts.group, x->root);
    tutti_tensor one = out->n > 0 ? out->tensor[0] : in->tensor[0];
    tutti_tensor from = in->n > 0 ? in->tensor[0] : (tutti_tensor){0},
                 to = out->n > 0 ? out->tensor[0] : (tutti_tensor){0};
    const tutti_tensor *ins = in->n > 0 ? in->tensor : NULL, *outs = out->n > 0 ? out->tensor : NULL;
    opts.group_rank = by_group;
    opts.factor = collective_factor(spec);
    switch ((enum form_id)spec->form) {
    case F_BROADCAST:
        return tutti_broadcast(one, root, &opts);
    case F_ALL_REDUCE:
        return tutti_all_reduce(one, spec->op, &opts);
    case F_ALL_REDUCE_INTO:
        return tutti_all_reduce_into(to, from, spec->op, &opts);
    case F_REDUCE:
        return tutti_reduce(one, root, spec->op, &opts);
    case F_REDUCE_INTO:
        return tutti_reduce_into(to, from, root, spec->op, &opts);
    case F_ALL_GATHER:
        return tutti_all_gather(outs, out->n, from, &opts);
    case F_ALL_GATHER_INTO:
        return tutti_all_gather_into_tensor(to, from, &opts);
    case F_GATHER:
        return tutti_gather(from, outs, out->n, root, &opts);
    case F_GATHER_INTO:
        return tutti_gather_into_tensor(to, from, root, &opts);
    case F_SCATTER:
        return tutti_scatter(to, ins, in->n, root, &opts);
    case F_SCATTER_TENSOR:
        return tutti_scatter_tensor(to, from, root, &opts);
    case F_REDUCE_SCATTER:
        return tutti_reduce_scatter(to, ins, in->n, spec->op, &opts);
    case F_REDUCE_SCATTER_TENSOR:
        return tutti_reduce_scatter_tensor(to, from, spec->op, &opts);
    case F_ALL_TO_ALL:
        return tutti_all_to_all(outs, ins, in->n, &opts);
    case F_ALL_TO_ALL_SINGLE:
        return tutti_all_to_all_single(to, from, NULL, NULL, &opts);
    case F_ALL_TO_ALL_SPLITS:
        return tutti_all_to_all_single(to, from, out->count, in->count, &opts);
    case F_SCAN:
        return tutti_scan(one, spec->op, &opts);
    case F_SCAN_INTO:
        return tutti_scan_into(to, from, spec->op, &opts);
    case F_EXSCAN:
        return tutti_exscan(one, spec->op, &opts);
    case F_EXSCAN_INTO:
        return tutti_exscan_into(to, from, spec->op, &opts);
    default:
        return TUTTI_ERR_INVALID_ARGUMENT;
    }
}

/* Waits in one of several ways, which the seed chooses. */
static int finish(struct rank *rank, tutti_work **work)
{
    if (rank->seed >> 9 & 1)
        while (!tutti_work_is_completed(*work))
            if (rank->seed >> 10 & 1) break;
    return tutti_wait(work, rank->seed >> 11 & 1 ? TUTTI_INFINITE : TUTTI_DEFAULT_TIMEOUT);
}

static enum verdict refused(struct rank *rank, const struct spec *spec, int status)
{
    if (status == TUTTI_ERR_UNSUPPORTED && tutti_last_error()[0] != '\0') return PASSED;
    return rank_fail(rank, "%s of %s is undefined and must return UNSUPPORTED, but the call returned %s",
                     tutti_reduce_op_name(spec->op), tutti_dtype_name(spec->dtype), tutti_status_string(status));
}

static enum verdict call_and_verify(struct rank *rank, const struct spec *spec, tutti_group *group, struct operands *x)
{
    tutti_work *work = NULL;
    bool async = spec->async || rank->options->cuda; /* on a device a blocking call only enqueues */
    tutti_opts opts = {.group = group, .async_op = async ? &work : NULL};
    int status = collective_call(rank, spec, x, opts);
    if (spec->refused) {
        if (status == TUTTI_OK && work != NULL) tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT);
        return refused(rank, spec, status);
    }
    if (status == TUTTI_OK && async) status = finish(rank, &work);
    if (status != TUTTI_OK) {
        tutti_work_free(work);
        return rank_status(rank, __FILE__, __LINE__, forms[spec->form].name, status);
    }
    if (forms[spec->form].pattern == ALL_REDUCE)
        rank_bits(rank, x->out.block[0], (size_t)(x->out.total * tutti_dtype_bytes(spec->dtype)));
    return collective_verify(rank, spec, x);
}

enum verdict collective_run(struct rank *rank)
{
    const struct spec *spec = &rank->check->spec;
    tutti_group *group = rank->groups[spec->where];
    struct operands x;
    if (group == NULL || tutti_get_rank(group) < 0) return APART;
    if (spec->where == SPLIT)
        rank->seed = input_mix(rank->seed, (uint64_t)rank->rank % 2); /* the case runs in two groups at once */
    enum verdict verdict = operands_new(rank, spec, group, &x) ? call_and_verify(rank, spec, group, &x)
                                                               : rank_fail(rank, "no memory for the operands");
    operands_free(&x);
    return verdict;
}
