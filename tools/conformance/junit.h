/* Outcomes of cases, and the JUnit file that CI servers read. */
#ifndef CONFORMANCE_JUNIT_H
#define CONFORMANCE_JUNIT_H

#include "conformance/options.h"
#include "conformance/suite.h"

struct outcome {
    const struct check *check;
    int ranks;
    enum verdict verdict;
    double seconds;
    char *text; /* NULL if the case passed */
};

/* Writes one suite per number of ranks.  Returns false, with errno set, if the file cannot be written. */
bool junit_write(const struct options *options, const struct outcome *outcomes, int n);

#endif
