/* The operations that can be measured: their calls, expected results and bandwidths.
 *
 * A size, as in nccl-tests, is the larger of an operation's two buffers on one rank:
 *   all_reduce, broadcast, reduce, scan, exscan, pingpong   the message
 *   all_gather, gather (on the root)          the received data; each rank sends a chunk
 *   reduce_scatter, scatter (on the root)     the sent data; each rank receives a chunk
 *   all_to_all                                all data that a rank sends, a chunk to each rank
 *   barrier                                   0
 * A chunk is the size divided by the number of ranks, in whole elements and at least one.  The root is rank 0.
 */
#ifndef BENCH_OPS_H
#define BENCH_OPS_H

#include "bench/data.h"

#include <tutti/tutti.h>

/* One operation at one size. */
struct bench_case {
    const struct bench_op *op;
    int rank, ranks;
    int64_t bytes;        /* the requested size */
    int64_t count, chunk; /* in elements */
    bool async;           /* start with async_op, then wait */
    tutti_group *group;   /* NULL: the default group */
    struct data data;
    tutti_tensor in, out; /* both have max(count, ranks * chunk) elements */
};

struct bench_op {
    const char *name;
    bool sized, reduces;
    double trips; /* times that the message is sent in one iteration */
    int (*start)(const struct bench_case *c, const tutti_opts *opts);
    int64_t (*wrong)(const struct bench_case *c); /* returns the number of wrong elements of `out` */
    double (*bus)(double ranks); /* bus bandwidth divided by algorithm bandwidth, as nccl-tests defines them */
    int kind;                    /* a tutti_kind, or -1 if it is not an operation of a group */
    bool by_name;                /* not included in "all" */
};

/* All operations, in the order in which they run.  The last entry has no name. */
extern const struct bench_op bench_ops[];

/* Returns the number of elements that the buffers of a case must hold. */
int64_t bench_numel(const struct bench_case *c);

/* Runs one iteration and waits until it is complete. */
int bench_run(const struct bench_case *c);

#endif
