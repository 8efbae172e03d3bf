/* Reports which rules (lines) the cases of a run have tested. */
#ifndef CONFORMANCE_REPORT_LINES_H
#define CONFORMANCE_REPORT_LINES_H

#include "common/doc.h"
#include "conformance/junit.h"

/* Prints the number of rules that passed and names the others, or adds that to the document.  Returns how many rules
 * have no case in this run although its options require one.  With a filter none is required. */
int report_lines(const struct options *options, const struct outcome *outcomes, int n, doc *document);

#endif
