/* The report on all launches: a table, the reasons, the commands that repeat failures, and the JUnit file. */
#ifndef CONFORMANCE_REPORT_H
#define CONFORMANCE_REPORT_H

#include "conformance/cases.h"
#include "conformance/scoreboard.h"

struct report;

struct report *report_new(const struct options *options, const struct cases *cases);
/* Adds a launch's verdicts.  Must be called after each launch. */
void report_add(struct report *report, struct scoreboard *scoreboard);
/* Records that the cases from `at` on were not run, because of scoreboard->end. */
void report_broken(struct report *report, const struct scoreboard *scoreboard, int at);

/* Prints the report and writes the file.  Returns the program's exit status. */
int report_end(struct report *report);
void report_free(struct report *report);

/* Lists the cases, and the rules (lines) with their cases. */
void report_list(const struct options *options, const struct cases *cases);

#endif
