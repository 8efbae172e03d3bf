/* --plot: draws the times and bandwidths as curves with gnuplot. */
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include "bench/options.h"
#include "bench/series.h"

/* Ends the program with 2 if gnuplot is not installed or the file's name is invalid.  Called before any measurement. */
void plot_check(const struct options *options);

/* Draws all curves.  Returns false if the file was not written. */
bool plot_draw(const struct options *options, const struct series_set *set);

#endif
