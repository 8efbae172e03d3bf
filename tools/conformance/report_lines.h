/* Reports which rules (lines) the cases of a run have tested. */
#ifndef CONFORMANCE_REPORT_LINES_H
#define CONFORMANCE_REPORT_LINES_H

#include "conformance/junit.h"

/* Prints the number of rules that passed and names the others.  Returns how many rules have no case in this run
 * although its options require one.  With a filter none is required. */
int report_lines(const struct options *options, const struct outcome *outcomes, int n);

#endif
