#include "conformance/cases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool wanted(const char *filter, const char *name)
{
    if (filter == NULL) return true;
    return filter[0] == '=' ? strcmp(filter + 1, name) == 0 : strstr(name, filter) != NULL;
}

struct check *cases_add(struct cases *cases, const struct options *options, const char *kind, const char *name,
                        check_fn run)
{
    char full[CASE_NAME_MAX];
    snprintf(full, sizeof full, "%s/%s", kind, name);
    if (!wanted(options->filter, full)) return NULL;
    if (cases->n == cases->capacity) {
        cases->capacity = cases->capacity * 2 + 256;
        cases->check = realloc(cases->check, (size_t)cases->capacity * sizeof *cases->check);
        if (cases->check == NULL) abort();
    }
    struct check *check = &cases->check[cases->n++];
    *check = (struct check){.kind = kind, .run = run, .min_ranks = 1};
    memcpy(check->name, full, sizeof full);
    return check;
}

void cases_line(struct check *check, enum line line)
{
    for (int i = 0; i < LINES_EACH - 1; i++) {
        if (check->lines[i] == line) return;
        if (check->lines[i] != L_NONE) continue;
        check->lines[i] = line;
        return;
    }
    abort(); /* LINES_EACH must be larger */
}

void cases_rows(struct cases *cases, const struct options *options, const char *kind, const struct case_row *rows,
                int n)
{
    for (int i = 0; i < n; i++) {
        const struct case_row *row = &rows[i];
        if ((row->where == 'f' && options->quick) || (row->where == 'h' && !options->huge)) continue;
        struct check *check = cases_add(cases, options, kind, row->name, row->run);
        if (check == NULL) continue;
        check->min_ranks = row->min_ranks;
        check->processes = row->where == 'p';
        check->spawned = row->where == 's';
        check->same_bits = row->where == 'b';
        for (int k = 0; k < 6 && row->lines[k] != L_NONE; k++) cases_line(check, row->lines[k]);
    }
}

void cases_make(struct cases *cases, const struct options *options)
{
    *cases = (struct cases){0};
    if (options->cuda) {
        collective_cases(cases, options);
        return;
    }
    cases_rows(cases, options, "tutorial", tutorial_rows, n_tutorial_rows);
    cases_rows(cases, options, "start", start_rows, n_start_rows);
    cases_rows(cases, options, "start", elsewhere_rows, n_elsewhere_rows);
    collective_cases(cases, options);
    cases_rows(cases, options, "order", hazards_rows, n_order_rows);
    cases_rows(cases, options, "barrier", barrier_rows, n_barrier_rows);
    cases_rows(cases, options, "messages", message_rows, n_message_rows);
    cases_rows(cases, options, "messages", unsized_rows, n_unsized_rows);
    cases_rows(cases, options, "work", work_rows, n_work_rows);
    cases_rows(cases, options, "bytes", bytes_rows, n_bytes_rows);
    cases_rows(cases, options, "memory", memory_rows, n_memory_rows);
    cases_rows(cases, options, "groups", group_rows, n_group_rows);
    cases_rows(cases, options, "arguments", error_rows, n_error_rows);
    cases_rows(cases, options, "failures", mismatch_rows, n_mismatch_rows);
}

void cases_free(struct cases *cases)
{
    free(cases->check);
}
