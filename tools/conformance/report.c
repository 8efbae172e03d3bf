#include "conformance/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/doc.h"
#include "common/output.h"
#include "conformance/junit.h"
#include "conformance/report_lines.h"
#include "conformance/watch.h"

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
    doc *broken_runs; /* --json */
};

struct report *report_new(const struct options *options, const struct cases *cases)
{
    struct report *report = calloc(1, sizeof *report);
    if (report == NULL) abort();
    report->options = options;
    report->cases = cases;
    report->start_ns = scoreboard_now_ns();
    if (options->json) report->broken_runs = doc_array();
    return report;
}

void report_free(struct report *report)
{
    for (int i = 0; i < report->n; i++) free(report->outcomes[i].text);
    free(report->outcomes);
    doc_free(report->broken_runs);
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
    printf("%sFAILED%s %s, %d ranks, seed %llu\n    %s\n    again: ", output_begin(stdout, OUTPUT_RED),
           output_end(stdout), outcome->check->name, outcome->ranks, (unsigned long long)report->options->seed,
           outcome->text);
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
        if (outcome.verdict != FAILED) continue;
        watch_clear_progress();
        fprintf(stderr, "  %sFAILED%s %s, %d ranks\n", output_begin(stderr, OUTPUT_RED), output_end(stderr),
                check->name, scoreboard->ranks);
    }
}

void report_broken(struct report *report, const struct scoreboard *scoreboard, int at)
{
    int rest = report->cases->n - at;
    report->broken++;
    if (report->broken_runs) {
        doc *run = doc_add(report->broken_runs, doc_object());
        doc_int(run, "ranks", scoreboard->ranks);
        doc_text(run, "from", report->cases->check[at].name);
        doc_int(run, "cases", rest);
        doc_text(run, "reason", scoreboard->end);
        return;
    }
    printf("BROKEN with %d ranks: %d case%s, from %s on, could not be run: %s\n", scoreboard->ranks, rest,
           rest == 1 ? "" : "s", report->cases->check[at].name, scoreboard->end);
}

static void print_row(const char *kind, const int count[FAILED + 1], double seconds)
{
    bool failed = count[FAILED] > 0;
    printf("%-26s %8d %8d %s%8d%s %9.2f\n", kind, count[PASSED], count[SKIPPED],
           failed ? output_begin(stdout, OUTPUT_RED) : "", count[FAILED], failed ? output_end(stdout) : "", seconds);
}

static void add_row(doc *object, const int count[FAILED + 1], double seconds)
{
    doc_int(object, "passed", count[PASSED]);
    doc_int(object, "skipped", count[SKIPPED]);
    doc_int(object, "failed", count[FAILED]);
    doc_real(object, "seconds", seconds);
}

/* Prints a row for each kind, or adds it to the document. */
static void print_table(const struct report *report, int total[FAILED + 1], doc *document)
{
    double all_seconds = (double)(scoreboard_now_ns() - report->start_ns) / 1e9;
    doc *list = document ? doc_set(document, "kinds", doc_array()) : NULL;
    if (!list) printf("\n%-26s %8s %8s %8s %9s\n", "kind", "passed", "skipped", "failed", "seconds");
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
        doc *object = list ? doc_add(list, doc_object()) : NULL;
        if (object) doc_text(object, "kind", kind);
        if (object)
            add_row(object, count, seconds);
        else
            print_row(kind, count, seconds);
    }
    if (document)
        add_row(document, total, all_seconds);
    else
        print_row("all", total, all_seconds);
}

static void print_reasons(const struct report *report, doc *document)
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
    doc *list = document ? doc_set(document, "skips", doc_array()) : NULL;
    if (n > 0 && !list) printf("\nskipped, because\n");
    for (int i = 0; i < n; i++) {
        doc *object = list ? doc_add(list, doc_object()) : NULL;
        if (!object) {
            printf("%6d  %s\n", reasons[i].count, reasons[i].text);
            continue;
        }
        doc_int(object, "count", reasons[i].count);
        doc_text(object, "reason", reasons[i].text);
    }
}

/* ---- the document of --json ---------------------------------------------------------------------------------------
 */

static doc *begin_document(const struct options *options)
{
    doc *document = doc_begin("tutti-conformance");
    doc_text(document, "backend", options->backend);
    doc_text(document, "ranks_are", options->threads ? "threads" : options->join ? "a job" : "processes");
    doc_int(document, "from_ranks", options->from_ranks);
    doc_int(document, "to_ranks", options->to_ranks);
    doc_int(document, "seed", (long long)options->seed);
    doc_bool(document, "quick", options->quick);
    doc_bool(document, "huge", options->huge);
    return document;
}

static void add_failure(const struct report *report, const struct outcome *outcome, doc *list)
{
    char *command = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&command, &bytes);
    if (file == NULL) abort();
    print_command(report, outcome, file);
    fclose(file);
    doc *object = doc_add(list, doc_object());
    doc_text(object, "case", outcome->check->name);
    doc_text(object, "kind", outcome->check->kind);
    doc_int(object, "ranks", outcome->ranks);
    doc_text(object, "reason", outcome->text);
    doc_text(object, "again", command);
    free(command);
}

static void print_failures(const struct report *report, doc *document)
{
    doc *list = document ? doc_set(document, "failures", doc_array()) : NULL;
    for (int i = 0; i < report->n; i++) {
        if (report->outcomes[i].verdict != FAILED) continue;
        if (list)
            add_failure(report, &report->outcomes[i], list);
        else
            print_failure(report, &report->outcomes[i]);
    }
}

int report_end(struct report *report)
{
    int total[FAILED + 1] = {0}, lost = 0;
    doc *document = report->options->json ? begin_document(report->options) : NULL;
    watch_clear_progress();
    print_table(report, total, document);
    print_reasons(report, document);
    lost = report_lines(report->options, report->outcomes, report->n, document);
    if (total[FAILED] > 0 && !document) printf("\n");
    print_failures(report, document);
    if (document) doc_set(document, "broken", report->broken_runs);
    report->broken_runs = NULL;
    if (document && !doc_write(document, output_data())) {
        perror("tutti-conformance: --json");
        return 2;
    }
    if (report->options->junit != NULL && !junit_write(report->options, report->outcomes, report->n)) {
        perror(report->options->junit);
        return 2;
    }
    return total[FAILED] > 0 || report->broken > 0 || lost > 0 ? 1 : 0;
}
