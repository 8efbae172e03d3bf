#include "dispatch/hazards.h"

#include "dispatch/packing.h"
#include "op/op.h"
#include "progress/work.h"

static bool is_copy(const struct tutti_work *work)
{
    return work->op.kind == TUTTI_COPY;
}

static bool touches(const tutti_tensor *a, int na, const tutti_tensor *b, int nb)
{
    for (int i = 0; i < na; i++)
        for (int k = 0; k < nb; k++)
            if (op_overlap(op_span_of(&a[i]), op_span_of(&b[k]))) return true;
    return false;
}

bool hazards_conflicts(const tutti_op *a, const tutti_op *b)
{
    return touches(a->out, a->n_out, b->out, b->n_out) || touches(a->out, a->n_out, b->in, b->n_in) ||
           touches(a->in, a->n_in, b->out, b->n_out);
}

/* Returns an operation with the tensors that the work reads and writes. */
static const tutti_op *touched_by(const struct tutti_work *work)
{
    return work->packing != NULL ? &work->packing->touches : &work->op;
}

static bool share_memory(const struct tutti_work *a, const struct tutti_work *b)
{
    return hazards_conflicts(touched_by(a), touched_by(b));
}

/* True if the work goes to a backend that keeps the order of its operations itself.  There, dispatching a later
 * operation before a blocked one would put the ranks out of step. */
static bool is_ordered(const struct tutti_work *work)
{
    if (work->entry != NULL) return false;
    const tutti_backend *backend = work->group->entries[group_device_of(work->group, &work->op)][0].backend;
    return backend != NULL && TUTTI_HAS(backend, traits) && (backend->traits & TUTTI_BACKEND_ORDERED) != 0;
}

/* True if a backend of the group may do the work natively.  Libraries such as MPI match collectives by the order in
 * which each rank calls them, so a later one must not overtake a blocked one. */
static bool may_be_native(const struct tutti_work *work)
{
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < work->group->n_entries[device]; i++)
            if (TUTTI_HAS(work->group->entries[device][i].backend, native[work->op.kind])) return true;
    return false;
}

/* True if two messages may match the same receive, so they must keep their order. */
static bool may_match_alike(const tutti_op *a, const tutti_op *b)
{
    bool any = a->root == TUTTI_ANY_SOURCE || b->root == TUTTI_ANY_SOURCE;
    bool any_tag = a->tag == TUTTI_ANY_TAG || b->tag == TUTTI_ANY_TAG;
    return (a->kind == TUTTI_SEND) == (b->kind == TUTTI_SEND) && (any_tag || a->tag == b->tag) &&
           (any || a->root == b->root);
}

static bool must_follow(const struct tutti_work *earlier, const struct tutti_work *work)
{
    bool messages = op_is_message(&earlier->op) || op_is_message(&work->op);
    if (earlier->parts > 0) return false; /* its parts are checked instead */
    if (is_copy(earlier) || is_copy(work)) return share_memory(earlier, work);
    if (op_is_message(&earlier->op) && op_is_message(&work->op))
        return !earlier->started && may_match_alike(&earlier->op, &work->op);
    if (messages) return false;
    if (share_memory(earlier, work)) return true;
    return (!earlier->started || earlier->comparing != NULL) && may_be_native(earlier) && may_be_native(work);
}

void hazards_enlist(struct tutti_work *work)
{
    const tutti_op *op = touched_by(work);
    struct op_span *reach = &work->group->reach;
    if (op_is_message(&work->op)) return;
    struct op_span own = op_span_join(op_span_of_all(op->in, op->n_in), op_span_of_all(op->out, op->n_out));
    if (work->group->n_enlisted++ == 0) *reach = (struct op_span){0, 0};
    work->enlisted = true;
    work->disjoint = !op_overlap(own, *reach);
    *reach = op_span_join(*reach, own);
}

/* True if only memory can block works.  Then works with disjoint memory need not wait. */
static bool blocks_by_memory_only(const struct tutti_group *group)
{
    return group->stager.backend == NULL && group->engine->n_blocked == 0 && group->engine->n_comparing == 0;
}

bool hazards_must_wait(const struct tutti_work *work)
{
    if (work->disjoint && blocks_by_memory_only(work->group)) return false;
    if (op_is_message(&work->op) ? work->group->stager.backend == NULL : is_ordered(work)) return false;
    const struct tutti_work *earlier;
    TAILQ_FOREACH(earlier, &work->group->works, group_link)
    {
        if (earlier == work) return false;
        if (must_follow(earlier, work)) return true;
    }
    return false;
}

bool hazards_hold_others(const struct tutti_work *work)
{
    return work->group->stager.backend == NULL && !op_is_message(&work->op) && may_be_native(work);
}
