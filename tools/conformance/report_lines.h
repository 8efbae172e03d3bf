/* Which lines of the meaning the cases that ran have shown. */
#ifndef CONFORMANCE_REPORT_LINES_H
#define CONFORMANCE_REPORT_LINES_H

#include "conformance/junit.h"

/* Prints how many lines were shown and names those that were not.  The number of lines that should have been shown in a
 * run of these options (a filter excuses all) and were not. */
int report_lines(const struct options *options, const struct outcome *outcomes, int n);

#endif
