/* Selects the algorithm of an operation: the one named, else that of a measured row, else the cheapest. */
#include "base/error.h"
#include "coll/cost.h"
#include "coll/override.h"

#include <string.h>

const char coll_fixed_order[] =
    "all_reduce=reduce_broadcast,reduce=fixed_tree,reduce_scatter=fixed_tree,scan=chain,exscan=chain";

static const struct coll_algorithm *choose_tuned(const struct coll_args *args, const struct coll_override *override,
                                                 struct coll_reason *reason)
{
    double bytes = cost_bytes(args);
    for (int i = 0; i < override->n_tuned; i++) {
        const struct coll_tuned *row = &override->tuned[i];
        if (row->kind != args->kind || bytes > (double)row->max_bytes) continue;
        if (row->algorithm->build == NULL || !cost_supports(row->algorithm, args)) continue;
        *reason = (struct coll_reason){.by = COLL_BY_TUNING, .max_bytes = row->max_bytes};
        return row->algorithm;
    }
    return NULL;
}

int64_t coll_segment(const struct coll_args *args)
{
    enum { PLENTY = 16 }; /* segments per rank */
    if (args->link == NULL || args->link->segment_bytes <= 0) return INT64_MAX;
    int64_t segment = args->link->segment_bytes / args->element;
    if (segment < 1) segment = 1;
    /* If half as many segments keep the ranks busy too, half as many messages cost less. */
    return cost_elements(args) / args->size / PLENTY >= segment ? 2 * segment : segment;
}

const struct coll_algorithm *coll_select(const struct coll_args *args, const struct coll_override *override,
                                         struct coll_reason *reason)
{
    struct coll_reason unasked;
    const struct coll_algorithm *chosen = NULL;
    if (reason == NULL) reason = &unasked;
    if (override && override->names && override_find(override->names, override->paths, args->kind, &chosen))
        return NULL;
    /* a path that the backend has declined is ignored, and an algorithm that cannot keep the order of ranks */
    if (!chosen || chosen->build == NULL || (args->ordered && !cost_supports(chosen, args))) {
        chosen = override ? choose_tuned(args, override, reason) : NULL;
        if (chosen) return chosen;
        *reason = (struct coll_reason){.by = COLL_BY_COST};
        return cost_cheapest(args, reason->estimate);
    }
    *reason = (struct coll_reason){.by = COLL_BY_NAME};
    if (cost_supports(chosen, args)) return chosen;
    error_set(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_ALGO: %s=%s needs blocks of one size; name another algorithm",
              tutti_kind_find(chosen->kind)->name, chosen->name);
    return NULL;
}
