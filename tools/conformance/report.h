/* What came out of all launches: a table, the reasons, the ways to repeat, JUnit's file. */
#ifndef CONFORMANCE_REPORT_H
#define CONFORMANCE_REPORT_H

#include "conformance/board.h"
#include "conformance/cases.h"

struct report;

struct report *report_new(const struct options *options, const struct cases *cases);
void report_add(struct report *report, struct board *board); /* after a launch */
/* The cases from `at` on were not run, because of board->end. */
void report_broken(struct report *report, const struct board *board, int at);

/* Prints all of it and writes the file; the program's exit status. */
int report_end(struct report *report);
void report_free(struct report *report);

/* Which lines the cases show. */
void report_list(const struct options *options, const struct cases *cases);

#endif
