/* The command line. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "bench/ops.h"

enum { SIZES_MAX = 64, OPS_MAX = 32, BACKENDS_MAX = 8 };

struct options {
    const char *backend[BACKENDS_MAX]; /* measured one after the other */
    int backends;
    const char *name; /* --csv: the first column */
    int ranks;        /* --ranks: the required world size; 0: any */
    bool op[OPS_MAX]; /* indices into bench_ops */
    int64_t size[SIZES_MAX];
    int sizes;
    double milliseconds;
    const struct dtype *dtype;
    tutti_reduce_op reduce_op;
    const char *reduce_op_name;
    bool async, csv, from_tutti;
    const struct bench_op *explain; /* --explain: explains explain_bytes of this operation and measures nothing */
    int64_t explain_bytes;
    const char *tune; /* --tune: the file */
    const char *plot; /* --plot: the file */
};

/* Ends the program after --help with 0, or after a mistake with a message and 2. */
void options_parse(int argc, char **argv, struct options *options);

/* Prints the message and ends the program with 2. */
void __attribute__((noreturn, format(printf, 1, 2))) options_refuse(const char *format, ...);

#endif
