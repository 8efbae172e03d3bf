/* The list of all cases.  It is the same, in the same order, on every run of the same form. */
#ifndef CONFORMANCE_CASES_H
#define CONFORMANCE_CASES_H

#include "conformance/options.h"
#include "conformance/suite.h"

struct cases {
    struct check *check;
    int n, capacity;
};

/* Makes the list of the cases that the options select. */
void cases_make(struct cases *cases, const struct options *options);
void cases_free(struct cases *cases);

/* Adds a case if the filter accepts it.  Its name begins with its kind. */
struct check *cases_add(struct cases *cases, const struct options *options, const char *kind, const char *name,
                        check_fn run);
void cases_line(struct check *check, enum line line);

/* A row of a table of hand-written cases. */
struct case_row {
    const char *name;
    check_fn run;
    int min_ranks;
    enum line lines[6];
    char where; /* 'p': only processes, 's': only processes that the suite spawned, 'f': only the full form, 'h': only
                   with
                   --huge, 'b': anywhere, and the results have the same bits; 0: anywhere */
};

void cases_rows(struct cases *cases, const struct options *options, const char *kind, const struct case_row *rows,
                int n);

/* The tables of hand-written cases, one or two per file. */
void collective_cases(struct cases *cases, const struct options *options);
extern const struct case_row barrier_rows[], message_rows[], work_rows[], group_rows[], bytes_rows[], error_rows[],
    mismatch_rows[], memory_rows[], start_rows[], elsewhere_rows[], tutorial_rows[], hazards_rows[], unsized_rows[];
extern const int n_barrier_rows, n_message_rows, n_work_rows, n_group_rows, n_bytes_rows, n_error_rows, n_mismatch_rows,
    n_memory_rows, n_start_rows, n_elsewhere_rows, n_tutorial_rows, n_order_rows, n_unsized_rows;

#endif
