#include "conformance/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/junit.h"
#include "conformance/report_lines.h"

enum { KINDS_MAX = 48, REASONS_MAX = 64 };

struct reason {
    char text[TEXT_MAX];
    int count;
};

struct report {
    const struct options *options;
    const struct cases *cases;
    struct outcome *outcomes;
    int n, capacity, broken;
    int64_t start_ns;
};

struct report *report_new(const struct options *options, const struct cases *cases)
{
    struct report *report = calloc(1, sizeof *report);
    if (report == NULL) abort();
    report->options = options;
    report->cases = cases;
    report->start_ns = scoreboard_now_ns();
    return report;
}

void report_free(struct report *report)
{
    for (int i = 0; i < report->n; i++) free(report->outcomes[i].text);
    free(report->outcomes);
    free(report);
}

static void keep(struct report *report, struct outcome outcome)
{
    if (report->n == report->capacity) {
        report->capacity = report->capacity * 2 + 1024;
        report->outcomes = realloc(report->outcomes, (size_t)report->capacity * sizeof *report->outcomes);
        if (report->outcomes == NULL) abort();
    }
    report->outcomes[report->n++] = outcome;
}

/* Prints the command that repeats only this case. */
static void print_command(const struct report *report, const struct outcome *outcome, FILE *file)
{
    const struct options *options = report->options;
    fprintf(file, "tutti-conformance --backend '%s'", options->backend);
    if (options->join)
        fprintf(file, " --join");
    else
        fprintf(file, " --%s --ranks %d", options->threads ? "threads" : "processes", outcome->ranks);
    if (options->cuda) fprintf(file, " --device cuda");
    fprintf(file, " --seed %llu%s%s --filter '=%s'", (unsigned long long)options->seed,
            options->quick ? " --quick" : "", options->huge ? " --huge" : "", outcome->check->name);
}

static void print_failure(const struct report *report, const struct outcome *outcome)
{
    printf("FAILED %s, %d ranks, seed %llu\n    %s\n    again: ", outcome->check->name, outcome->ranks,
           (unsigned long long)report->options->seed, outcome->text);
    print_command(report, outcome, stdout);
    putchar('\n');
}

void report_add(struct report *report, struct scoreboard *scoreboard)
{
    for (int at = 0; at < report->cases->n; at++) {
        char text[TEXT_MAX + 80];
        const struct check *check = &report->cases->check[at];
        struct outcome outcome = {.check = check, .ranks = scoreboard->ranks};
        outcome.verdict = scoreboard_fold(scoreboard, at, check, text, sizeof text);
        outcome.seconds = (double)scoreboard_result(scoreboard, at, 0)->seconds;
        if (outcome.verdict == NOT_RUN) continue;
        if (outcome.verdict != PASSED) outcome.text = strdup(text);
        keep(report, outcome);
        if (outcome.verdict == FAILED) fprintf(stderr, "  FAILED %s, %d ranks\n", check->name, scoreboard->ranks);
    }
}

void report_broken(struct report *report, const struct scoreboard *scoreboard, int at)
{
    int rest = report->cases->n - at;
    report->broken++;
    printf("BROKEN with %d ranks: %d case%s, from %s on, could not be run: %s\n", scoreboard->ranks, rest,
           rest == 1 ? "" : "s", report->cases->check[at].name, scoreboard->end);
}

static void print_table(const struct report *report, int total[FAILED + 1])
{
    printf("\n%-26s %8s %8s %8s %9s\n", "kind", "passed", "skipped", "failed", "seconds");
    for (int c = 0; c < report->cases->n; c++) {
        const char *kind = report->cases->check[c].kind;
        int count[FAILED + 1] = {0};
        double seconds = 0;
        if (c > 0 && strcmp(kind, report->cases->check[c - 1].kind) == 0) continue;
        for (int i = 0; i < report->n; i++) {
            if (strcmp(report->outcomes[i].check->kind, kind) != 0) continue;
            count[report->outcomes[i].verdict]++;
            total[report->outcomes[i].verdict]++;
            seconds += report->outcomes[i].seconds;
        }
        printf("%-26s %8d %8d %8d %9.2f\n", kind, count[PASSED], count[SKIPPED], count[FAILED], seconds);
    }
    printf("%-26s %8d %8d %8d %9.2f\n", "all", total[PASSED], total[SKIPPED], total[FAILED],
           (double)(scoreboard_now_ns() - report->start_ns) / 1e9);
}

static void print_reasons(const struct report *report)
{
    static struct reason reasons[REASONS_MAX];
    int n = 0;
    for (int i = 0; i < report->n; i++) {
        const struct outcome *outcome = &report->outcomes[i];
        if (outcome->verdict != SKIPPED) continue;
        int at = 0;
        while (at < n && strcmp(reasons[at].text, outcome->text) != 0) at++;
        if (at == REASONS_MAX) at--; /* the last entry counts all further reasons */
        if (at == n) snprintf(reasons[n++].text, TEXT_MAX, "%s", outcome->text);
        reasons[at].count++;
    }
    if (n > 0) printf("\nskipped, because\n");
    for (int i = 0; i < n; i++) printf("%6d  %s\n", reasons[i].count, reasons[i].text);
}

int report_end(struct report *report)
{
    int total[FAILED + 1] = {0}, lost = 0;
    print_table(report, total);
    print_reasons(report);
    lost = report_lines(report->options, report->outcomes, report->n);
    if (total[FAILED] > 0) printf("\n");
    for (int i = 0; i < report->n; i++)
        if (report->outcomes[i].verdict == FAILED) print_failure(report, &report->outcomes[i]);
    if (report->options->junit != NULL && !junit_write(report->options, report->outcomes, report->n)) {
        perror(report->options->junit);
        return 2;
    }
    return total[FAILED] > 0 || report->broken > 0 || lost > 0 ? 1 : 0;
}
