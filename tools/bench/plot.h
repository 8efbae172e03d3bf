/* --plot: draws the times as curves with gnuplot. */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include "bench/measure.h"
#include "bench/options.h"

/* Ends the program with 2 if gnuplot is not installed or the file's name is invalid.  Called before any measurement. */
void plot_check(const struct options *options);

/* Adds a point to the curve of options->backend[backend]. */
void plot_add(int backend, const struct bench_case *c, const struct result *result);

/* Draws all curves.  Returns false if the file was not written. */
bool plot_draw(const struct options *options);

#endif
