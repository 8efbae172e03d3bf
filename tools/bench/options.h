/* Parses tutti-bench's command line. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "bench/ops.h"

enum { SIZES_MAX = 64, OPS_MAX = 32, BACKENDS_MAX = 8 };

struct options {
    const char *backend[BACKENDS_MAX]; /* measured one after another */
    int backends;
    const char *name; /* --csv: the first column */
    int ranks;        /* --ranks: the required world size; 0: any */
    bool op[OPS_MAX]; /* by index in bench_ops: true if it is to be measured */
    int64_t size[SIZES_MAX];
    int sizes;
    double milliseconds;
    const struct dtype *dtype;
    tutti_reduce_op reduce_op;
    const char *reduce_op_name;
    bool async, csv, json, progress, from_tutti, regret, ops_given;
    const char *explain_op;         /* --explain: its name, or NULL */
    const struct bench_op *explain; /* the operation, or NULL */
    int64_t explain_bytes;
    const char *tune;       /* --tune: the file, or NULL */
    const char *plot;       /* --plot: the file, or NULL */
    const char *compare[2]; /* --compare: the files, or NULL */
};

/* Parses the command line.  Ends the program with 0 after --help, or with 2 after a message. */
void options_parse(int argc, char **argv, struct options *options);

/* Prints the message and ends the program with 2. */
void __attribute__((noreturn, format(printf, 1, 2))) options_refuse(const char *format, ...);

/* Makes the case of an operation and a size in bytes. */
typedef struct bench_case bench_case_maker(const struct options *options, const struct bench_op *op, int64_t bytes);

#endif
