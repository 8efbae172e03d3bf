/* The operations that are measured: how each is started, what it must leave behind, how its bandwidth is counted.
 *
 * A size, as in nccl-tests, is the larger of an operation's two buffers on one rank:
 *   all_reduce, broadcast, reduce, scan, exscan, pingpong   the message
 *   all_gather, gather (on the root)          what is received; each rank gives a chunk
 *   reduce_scatter, scatter (on the root)     what is sent; each rank gets a chunk
 *   all_to_all                                all that a rank sends; a chunk goes to each
 *   barrier                                   0
 * A chunk is the size divided by the ranks, in whole elements, at least one.  The root is rank 0.
 */
#ifndef BENCH_OPS_H
#define BENCH_OPS_H

#include "bench/data.h"

#include <tutti/tutti.h>

/* One operation at one size. */
struct bench_case {
    const struct bench_op *op;
    int rank, ranks;
    int64_t bytes;        /* the size asked for */
    int64_t count, chunk; /* elements */
    bool async;           /* start with async_op, then wait */
    tutti_group *group;   /* NULL: the default group */
    struct data data;
    tutti_tensor in, out; /* both of max(count, ranks * chunk) elements */
};

struct bench_op {
    const char *name;
    bool sized, reduces;
    double trips; /* bytes of the message in one iteration */
    int (*start)(const struct bench_case *c, const tutti_opts *opts);
    int64_t (*wrong)(const struct bench_case *c); /* number of elements of out */
    double (*bus)(double ranks);                  /* bus bandwidth over algorithm bandwidth, as nccl-tests has it */
    int kind;                                     /* a tutti_kind; -1: not an operation of a group */
    bool by_name;                                 /* not one of "all" */
};

/* In the order in which they run.  The last entry has no name. */
extern const struct bench_op bench_ops[];

/* Returns the number of elements that the buffers of a case must hold. */
int64_t bench_numel(const struct bench_case *c);

/* Runs one iteration, which is complete on return. */
int bench_run(const struct bench_case *c);

#endif
