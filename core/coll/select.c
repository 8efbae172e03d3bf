/* Selects the algorithm of an operation. */
#include "base/error.h"
#include "coll/override.h"
#include "parts.h"

#include <inttypes.h>
#include <string.h>

const char coll_fixed_order[] =
    "all_reduce=reduce_broadcast,reduce=fixed_tree,reduce_scatter=fixed_tree,scan=chain,exscan=chain";

/* The table of selections.  The first row applies whose kind, ranks, bytes and place match and whose algorithm supports
 * the shapes.  The last row of each kind has no limits.
 *
 * Bytes are those of the whole operation (count_bytes), on a link that transfers SELECT_BYTES in the time of one
 * latency.  For other links they are scaled, because fewer messages and fewer bytes cost the same at the thresholds. */
enum { ANY_RANKS = INT32_MAX, KIB = 1024, MIB = 1024 * 1024, SELECT_BYTES = 8 * KIB };
#define ANY_BYTES INT64_MAX
#define ANYWHERE COLL_ANYWHERE
#define MULTI_HOST COLL_MULTI_HOST
#define ONE_HOST COLL_ONE_HOST

static const struct select_row {
    tutti_kind kind;
    int max_ranks;
    int64_t max_bytes;
    const char *algorithm;
    enum coll_where where;
} select_rows[] = {
    {TUTTI_ALL_REDUCE, ANY_RANKS, 64 * KIB, "leaders", MULTI_HOST},
    {TUTTI_ALL_REDUCE, ANY_RANKS, ANY_BYTES, "hierarchical", MULTI_HOST},
    {TUTTI_ALL_REDUCE, 2, 16 * KIB, "recursive_doubling", ANYWHERE},
    {TUTTI_ALL_REDUCE, 2, ANY_BYTES, "ring", ANYWHERE},
    {TUTTI_ALL_REDUCE, ANY_RANKS, 16 * KIB, "recursive_doubling", ANYWHERE},
    {TUTTI_ALL_REDUCE, ANY_RANKS, 512 * KIB, "rabenseifner", ANYWHERE},
    {TUTTI_ALL_REDUCE, 16, ANY_BYTES, "ring", ANYWHERE},
    {TUTTI_ALL_REDUCE, ANY_RANKS, 16 * MIB, "rabenseifner", ANYWHERE},
    {TUTTI_ALL_REDUCE, ANY_RANKS, ANY_BYTES, "ring", ANYWHERE},
    {TUTTI_BROADCAST, ANY_RANKS, 64 * KIB, "leaders", MULTI_HOST},
    {TUTTI_BROADCAST, ANY_RANKS, ANY_BYTES, "hierarchical", MULTI_HOST},
    {TUTTI_BROADCAST, 2, ANY_BYTES, "binomial", ANYWHERE},
    {TUTTI_BROADCAST, 4, 32 * KIB, "binomial", ONE_HOST},
    {TUTTI_BROADCAST, 4, 256 * KIB, "linear", ONE_HOST},
    {TUTTI_BROADCAST, 16, 512 * KIB, "binomial", ANYWHERE},
    {TUTTI_BROADCAST, 16, ANY_BYTES, "chain", ANYWHERE},
    {TUTTI_BROADCAST, ANY_RANKS, 128 * KIB, "binomial", ANYWHERE},
    {TUTTI_BROADCAST, ANY_RANKS, ANY_BYTES, "scatter_allgather", ANYWHERE},
    {TUTTI_REDUCE, ANY_RANKS, 64 * KIB, "leaders", MULTI_HOST},
    {TUTTI_REDUCE, ANY_RANKS, ANY_BYTES, "hierarchical", MULTI_HOST},
    {TUTTI_REDUCE, 2, ANY_BYTES, "binomial", ANYWHERE},
    {TUTTI_REDUCE, ANY_RANKS, 64 * KIB, "binomial", ANYWHERE},
    {TUTTI_REDUCE, ANY_RANKS, 8 * MIB, "reduce_scatter_gather", ANYWHERE},
    {TUTTI_REDUCE, 16, ANY_BYTES, "chain", ANYWHERE},
    {TUTTI_REDUCE, ANY_RANKS, ANY_BYTES, "reduce_scatter_gather", ANYWHERE},
    {TUTTI_ALL_GATHER, ANY_RANKS, 64 * KIB, "leaders", MULTI_HOST},
    {TUTTI_ALL_GATHER, ANY_RANKS, ANY_BYTES, "hierarchical", MULTI_HOST},
    {TUTTI_ALL_GATHER, 2, ANY_BYTES, "ring", ANYWHERE},
    {TUTTI_ALL_GATHER, ANY_RANKS, 64 * KIB, "bruck", ANYWHERE},
    {TUTTI_ALL_GATHER, ANY_RANKS, ANY_BYTES, "ring", ANYWHERE},
    {TUTTI_GATHER, 4, ANY_BYTES, "linear", ANYWHERE},
    {TUTTI_GATHER, ANY_RANKS, 64 * KIB, "binomial", ANYWHERE},
    {TUTTI_GATHER, ANY_RANKS, ANY_BYTES, "linear", ANYWHERE},
    {TUTTI_SCATTER, 4, ANY_BYTES, "linear", ANYWHERE},
    {TUTTI_SCATTER, ANY_RANKS, 64 * KIB, "binomial", ANYWHERE},
    {TUTTI_SCATTER, ANY_RANKS, ANY_BYTES, "linear", ANYWHERE},
    {TUTTI_REDUCE_SCATTER, ANY_RANKS, 64 * KIB, "leaders", MULTI_HOST},
    {TUTTI_REDUCE_SCATTER, ANY_RANKS, ANY_BYTES, "hierarchical", MULTI_HOST},
    {TUTTI_REDUCE_SCATTER, 2, ANY_BYTES, "ring", ANYWHERE},
    {TUTTI_REDUCE_SCATTER, ANY_RANKS, 64 * KIB, "recursive_halving", ANYWHERE},
    {TUTTI_REDUCE_SCATTER, ANY_RANKS, ANY_BYTES, "ring", ANYWHERE},
    {TUTTI_ALL_TO_ALL, 8, ANY_BYTES, "pairwise", ANYWHERE},
    {TUTTI_ALL_TO_ALL, ANY_RANKS, 8 * KIB, "bruck", ANYWHERE},
    {TUTTI_ALL_TO_ALL, ANY_RANKS, ANY_BYTES, "pairwise", ANYWHERE},
    {TUTTI_BARRIER, ANY_RANKS, ANY_BYTES, "leaders", MULTI_HOST},
    {TUTTI_BARRIER, ANY_RANKS, ANY_BYTES, "dissemination", ANYWHERE},
    {TUTTI_SCAN, 2, ANY_BYTES, "chain", ANYWHERE},
    {TUTTI_SCAN, ANY_RANKS, 64 * KIB, "recursive_doubling", ANYWHERE},
    {TUTTI_SCAN, ANY_RANKS, ANY_BYTES, "chain", ANYWHERE},
    {TUTTI_EXSCAN, 2, ANY_BYTES, "chain", ANYWHERE},
    {TUTTI_EXSCAN, ANY_RANKS, 64 * KIB, "recursive_doubling", ANYWHERE},
    {TUTTI_EXSCAN, ANY_RANKS, ANY_BYTES, "chain", ANYWHERE},
};

enum { SELECT_ROWS = sizeof select_rows / sizeof select_rows[0] };

static bool supports_shapes(const struct coll_algorithm *algorithm, const struct coll_args *args)
{
    return algorithm->uneven || args->even || !tutti_kind_has_blocks(args->kind);
}

static int64_t sum_counts(const int64_t *count, int size)
{
    int64_t sum = 0;
    for (int i = 0; i < size; i++) sum += count[i];
    return sum;
}

/* Returns the elements of the whole operation as far as all ranks know them.  If blocks differ, only all_gather and
 * reduce_scatter show every rank all counts; other kinds have one algorithm for that case. */
static int64_t count_elements(const struct coll_args *args)
{
    if (!tutti_kind_has_blocks(args->kind)) return args->count;
    if (args->even) return ring_times(args->count, args->size);
    if (!tutti_kind_knows_blocks(args->kind)) return 0;
    return sum_counts(tutti_kind_in_blocks(args->kind) ? args->in.count : args->out.count, args->size);
}

/* Returns the bytes of the whole operation, which never differ between ranks. */
static double count_bytes(const struct coll_args *args)
{
    return (double)count_elements(args) * (double)args->element;
}

/* Returns the bytes to compare with the rows' limits. */
static double scale_bytes(double bytes, const struct coll_link *link)
{
    if (link == NULL || link->latency_ns <= 0 || link->bytes_per_us <= 0) return bytes;
    return bytes * SELECT_BYTES * 1000.0 / ((double)link->latency_ns * (double)link->bytes_per_us);
}

static int64_t round_bytes(double bytes)
{
    return bytes < 9e18 ? (int64_t)bytes : INT64_MAX;
}

static bool applies_to(const struct coll_hosts *hosts, enum coll_where where)
{
    if (where == COLL_ANYWHERE) return true;
    if (hosts == NULL) return false;
    return where == COLL_ONE_HOST ? hosts->n == 1 : hosts->n > 1 && hosts->most > 1;
}

static const struct coll_algorithm *choose_from_table(const struct coll_args *args, struct coll_reason *reason)
{
    int64_t bytes = round_bytes(scale_bytes(count_bytes(args), args->link));
    for (int i = 0; i < SELECT_ROWS; i++) {
        const struct select_row *row = &select_rows[i];
        if (row->kind != args->kind || args->size > row->max_ranks || bytes > row->max_bytes) continue;
        if (!applies_to(args->hosts, row->where)) continue;
        const struct coll_algorithm *found = coll_find(row->kind, row->algorithm, strlen(row->algorithm));
        if (!found || !supports_shapes(found, args)) continue;
        *reason = (struct coll_reason){COLL_BY_TABLE, bytes, row->max_bytes, row->max_ranks, row->where};
        return found;
    }
    error_set(TUTTI_ERR_UNSUPPORTED, "no algorithm of %s fits %d ranks and %" PRIi64 " elements",
              tutti_kind_find(args->kind)->name, args->size, args->count);
    return NULL;
}

static const struct coll_algorithm *choose_tuned(const struct coll_args *args, const struct coll_override *override,
                                                 struct coll_reason *reason)
{
    int64_t bytes = round_bytes(count_bytes(args));
    for (int i = 0; i < override->n_tuned; i++) {
        const struct coll_tuned *row = &override->tuned[i];
        if (row->kind != args->kind || bytes > row->max_bytes) continue;
        if (row->algorithm->build == NULL || !supports_shapes(row->algorithm, args)) continue;
        *reason = (struct coll_reason){.by = COLL_BY_TUNING, .bytes = bytes, .max_bytes = row->max_bytes};
        return row->algorithm;
    }
    return NULL;
}

/* ---- segments ------------------------------------------------------------------------------------------------- */

int64_t coll_segment(const struct coll_args *args)
{
    enum { PLENTY = 16 }; /* segments per rank */
    if (args->link == NULL || args->link->segment_bytes <= 0) return INT64_MAX;
    int64_t segment = args->link->segment_bytes / args->element;
    if (segment < 1) segment = 1;
    /* If half as many segments keep the ranks busy too, half as many messages cost less. */
    return count_elements(args) / args->size / PLENTY >= segment ? 2 * segment : segment;
}

const struct coll_algorithm *coll_select(const struct coll_args *args, const struct coll_override *override,
                                         struct coll_reason *reason)
{
    struct coll_reason unasked;
    const struct coll_algorithm *chosen = NULL;
    if (reason == NULL) reason = &unasked;
    if (override && override->names && override_find(override->names, override->paths, args->kind, &chosen))
        return NULL;
    if (!chosen || chosen->build == NULL) { /* a path that the backend has declined is ignored */
        const struct coll_algorithm *tuned = override ? choose_tuned(args, override, reason) : NULL;
        return tuned ? tuned : choose_from_table(args, reason);
    }
    *reason = (struct coll_reason){.by = COLL_BY_NAME, .bytes = round_bytes(count_bytes(args))};
    if (supports_shapes(chosen, args)) return chosen;
    error_set(TUTTI_ERR_INVALID_ARGUMENT, "TUTTI_ALGO: %s=%s needs blocks of one size; name another algorithm",
              tutti_kind_find(chosen->kind)->name, chosen->name);
    return NULL;
}
