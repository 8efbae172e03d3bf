/* The command line. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "bench/ops.h"

enum { SIZES_MAX = 64, OPS_MAX = 32, BACKENDS_MAX = 8 };

struct options {
    const char *backend[BACKENDS_MAX]; /* one after the other */
    int backends;
    const char *name; /* --csv: the first column */
    int ranks;        /* --ranks: what the world must be; 0: anything */
    bool op[OPS_MAX]; /* by place in bench_ops */
    int64_t size[SIZES_MAX];
    int sizes;
    double milliseconds;
    const struct dtype *dtype;
    tutti_reduce_op reduce_op;
    const char *reduce_op_name;
    bool async, csv, from_tutti;
    const struct bench_op *explain; /* --explain: this operation, explain_bytes of it; nothing is measured */
    int64_t explain_bytes;
    const char *tune; /* --tune: the file */
    const char *plot; /* --plot: the file */
};

/* Ends the program: after --help with 0, after a mistake with a sentence and 2. */
void options_parse(int argc, char **argv, struct options *options);

/* The sentence (printf), then the end, with 2. */
void __attribute__((noreturn, format(printf, 1, 2))) options_refuse(const char *format, ...);

#endif
