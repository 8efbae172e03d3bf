/* --compare: sets the results of two files side by side. */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include "bench/options.h"

/* Compares the files of options->compare, and draws them with --plot.  Returns false after a message. */
bool compare_files(const struct options *options);

#endif
