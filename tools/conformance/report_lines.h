/* The lines of the meaning that the cases of a run have shown. */
#ifndef CONFORMANCE_REPORT_LINES_H
#define CONFORMANCE_REPORT_LINES_H

#include "conformance/junit.h"

/* Prints how many lines were shown and names those that were not.  Returns how many lines a run with these options
 * should have shown and did not.  A filter excuses all. */
int report_lines(const struct options *options, const struct outcome *outcomes, int n);

#endif
