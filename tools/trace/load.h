/* Reads the trace files of a folder (tutti/trace.h).  Everything in them is checked before it is used.  A file that was
 * cut short counts up to its last whole record. */
#ifndef TRACE_LOAD_H
#define TRACE_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <tutti/trace.h>

/* The file of one rank. */
struct load_rank {
    char *path;
    char *data; /* the whole file */
    size_t size;
    tutti_trace_begin begin;
    tutti_trace_align align;
    tutti_trace_clock first, last;
    double ns_per_tick;
    const tutti_trace_group **groups; /* by number - 1; NULL: unknown */
    int n_groups;
    tutti_trace_op *ops;
    int64_t *wait_ns; /* per operation: see steps.h and messages.h */
    size_t n_ops;
    tutti_trace_range *ranges;
    size_t n_ranges;
    bool was_cut;
};

struct load {
    struct load_rank *ranks; /* ascending */
    int n;
    int64_t begin_ns; /* the earliest issue of an operation or begin of a range */
    size_t n_ops;
};

/* Reads all files of the folder.  Warns of files that cannot be used, and of those that were cut.  Returns false after
 * a message if none is left. */
bool load_folder(const char *folder, struct load *load);
void load_free(struct load *load);

/* Returns the operation's group, or NULL if the file does not describe it. */
const tutti_trace_group *load_group(const struct load_rank *rank, const tutti_trace_op *op);

/* Converts ticks to the time of rank 0's host. */
static inline int64_t load_time_ns(const struct load_rank *rank, uint64_t ticks)
{
    double ns = (double)(int64_t)(ticks - rank->first.ticks) * rank->ns_per_tick;
    return rank->first.monotonic_ns + (int64_t)ns + rank->align.offset_ns;
}

/* Returns when the operation was ready to communicate. */
static inline int64_t load_arrival_ns(const struct load_rank *rank, const tutti_trace_op *op)
{
    return load_time_ns(rank, op->issued + op->started);
}

/* Returns how far the clocks of two ranks may be apart, or -1 if it is unknown. */
static inline int64_t load_clock_error(const struct load_rank *a, const struct load_rank *b)
{
    if (a->align.error_ns < 0 || b->align.error_ns < 0) return -1;
    return a->align.error_ns + b->align.error_ns;
}

#endif
