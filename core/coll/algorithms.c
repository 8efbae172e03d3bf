/* The table of all algorithms, and the names of collectives. */
#include <string.h>

#include "parts.h"

const struct coll_algorithm coll_algorithms[] = {
    {TUTTI_ALL_REDUCE, "recursive_doubling", all_reduce_recursive_doubling, true},
    {TUTTI_ALL_REDUCE, "ring", all_reduce_ring, true},
    {TUTTI_ALL_REDUCE, "rabenseifner", all_reduce_rabenseifner, true},
    {TUTTI_ALL_REDUCE, "reduce_broadcast", all_reduce_reduce_broadcast, true},
    {TUTTI_ALL_REDUCE, "hierarchical", all_reduce_hierarchical, true},
    {TUTTI_ALL_REDUCE, "leaders", all_reduce_leaders, true},
    {TUTTI_BROADCAST, "binomial", broadcast_binomial, true},
    {TUTTI_BROADCAST, "scatter_allgather", broadcast_scatter_allgather, true},
    {TUTTI_BROADCAST, "chain", broadcast_chain, true},
    {TUTTI_BROADCAST, "linear", broadcast_linear, true},
    {TUTTI_BROADCAST, "hierarchical", broadcast_hierarchical, true},
    {TUTTI_BROADCAST, "leaders", broadcast_leaders, true},
    {TUTTI_REDUCE, "binomial", reduce_binomial, true},
    {TUTTI_REDUCE, "chain", reduce_chain, true},
    {TUTTI_REDUCE, "reduce_scatter_gather", reduce_reduce_scatter_gather, true},
    {TUTTI_REDUCE, "fixed_tree", reduce_fixed_tree, true},
    {TUTTI_REDUCE, "hierarchical", reduce_hierarchical, true},
    {TUTTI_REDUCE, "leaders", reduce_leaders, true},
    {TUTTI_ALL_GATHER, "ring", all_gather_ring, true},
    {TUTTI_ALL_GATHER, "bruck", all_gather_bruck, true},
    {TUTTI_ALL_GATHER, "gather_broadcast", all_gather_gather_broadcast, true},
    {TUTTI_ALL_GATHER, "hierarchical", all_gather_hierarchical, true},
    {TUTTI_ALL_GATHER, "leaders", all_gather_leaders, true},
    {TUTTI_GATHER, "linear", gather_linear, true},
    {TUTTI_GATHER, "binomial", gather_binomial, false},
    {TUTTI_SCATTER, "linear", scatter_linear, true},
    {TUTTI_SCATTER, "binomial", scatter_binomial, false},
    {TUTTI_REDUCE_SCATTER, "ring", reduce_scatter_ring, true},
    {TUTTI_REDUCE_SCATTER, "pairwise", reduce_scatter_pairwise, true},
    {TUTTI_REDUCE_SCATTER, "recursive_halving", reduce_scatter_recursive_halving, true},
    {TUTTI_REDUCE_SCATTER, "fixed_tree", reduce_scatter_fixed_tree, true},
    {TUTTI_REDUCE_SCATTER, "hierarchical", reduce_scatter_hierarchical, true},
    {TUTTI_REDUCE_SCATTER, "leaders", reduce_scatter_leaders, true},
    {TUTTI_ALL_TO_ALL, "pairwise", all_to_all_pairwise, true},
    {TUTTI_ALL_TO_ALL, "bruck", all_to_all_bruck, false},
    {TUTTI_BARRIER, "dissemination", barrier_dissemination, true},
    {TUTTI_BARRIER, "tree", barrier_tree, true},
    {TUTTI_BARRIER, "linear", barrier_linear, true},
    {TUTTI_BARRIER, "leaders", barrier_leaders, true},
    {TUTTI_KIND_COUNT, NULL, NULL, false},
};

static bool is_name(const char *name, const char *text, size_t length)
{
    return strlen(name) == length && memcmp(name, text, length) == 0;
}

const struct coll_algorithm *coll_find(tutti_kind kind, const char *name, size_t length)
{
    for (const struct coll_algorithm *i = coll_algorithms; i->name; i++)
        if (i->kind == kind && is_name(i->name, name, length)) return i;
    return NULL;
}

const struct coll_algorithm *coll_nth(tutti_kind kind, int n)
{
    for (const struct coll_algorithm *i = coll_algorithms; i->name; i++)
        if (i->kind == kind && n-- == 0) return i;
    return NULL;
}

const char *coll_kind_name(tutti_kind kind)
{
    return coll_nth(kind, 0) != NULL ? tutti_kind_find(kind)->name : NULL;
}

int coll_kind(const char *name, size_t length)
{
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++)
        if (is_name(tutti_kind_find((tutti_kind)kind)->name, name, length) && coll_nth((tutti_kind)kind, 0) != NULL)
            return kind;
    return -1;
}
