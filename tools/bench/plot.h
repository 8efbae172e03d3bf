/* --plot: the times as curves, drawn by gnuplot. */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include "bench/measure.h"
#include "bench/options.h"

/* Ends the program, with 2, where gnuplot is not there: before anything is measured. */
void plot_check(const struct options *options);

/* A point of the curve of options->backend[backend]. */
void plot_add(int backend, const struct bench_case *c, const struct result *result);

/* Draws; whether the file is there. */
bool plot_draw(const struct options *options);

#endif
