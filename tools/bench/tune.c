#include "bench/tune.h"
#include "bench/alternatives.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define TUNE_FIRST_LINE "tutti tuning 1"

/* minimum gain of an algorithm over the one for the next smaller size */
static const double margin = 0.95;

enum { TUNE_LINE_MAX = 256 };

/* ---- measuring ---------------------------------------------------------------------------------------------- */

/* Returns the fastest algorithm.  Keeps `before`, that of the next smaller size, unless another is clearly faster. */
static const char *fastest(const struct options *options, struct bench_case *c, const char *before, bool *right)
{
    const char *best = NULL;
    double took[ALTERNATIVES_MAX], least = 0;
    struct alternatives list;
    alternatives_open(c, &list);
    for (int i = 0; i < list.n; i++) {
        took[i] = alternatives_time(options, c, list.group[i], right);
        if (before == NULL || strcmp(list.name[i], before) != 0) continue;
        best = before;
        least = took[i] * margin;
    }
    if (c->rank == 0) printf("  %-14s %11lld", c->op->name, (long long)c->bytes);
    for (int i = 0; i < list.n; i++) {
        if (c->rank == 0) printf("  %s %.1f", list.name[i], took[i]);
        if (best != NULL && took[i] >= least) continue;
        best = list.name[i];
        least = took[i];
    }
    if (c->rank == 0) printf("  -> %s\n", best);
    fflush(stdout);
    alternatives_close(&list);
    return best;
}

/* Returns the middle of two sizes on a logarithmic scale. */
static int64_t between(int64_t low, int64_t high)
{
    return (int64_t)sqrt((double)(low > 0 ? low : 1) * (double)high);
}

/* Writes the rows of one operation. */
static void tune_op(const struct options *options, const struct bench_op *op, const char *lead, FILE *rows,
                    bench_case_maker *make_case, bool *right)
{
    const char *before = NULL;
    int64_t last = 0;
    for (int i = 0; i < (op->sized ? options->sizes : 1); i++) {
        struct bench_case c = make_case(options, op, op->sized ? options->size[i] : 0);
        const char *best = fastest(options, &c, before, right);
        if (before != NULL && strcmp(best, before) != 0)
            fprintf(rows, "%s%s %lld %s\n", lead, op->name, (long long)between(last, c.bytes), before);
        before = best;
        last = c.bytes;
    }
    fprintf(rows, "%s%s any %s\n", lead, op->name, before);
}

/* ---- the file ----------------------------------------------------------------------------------------------- */

/* Returns the operation of a row. */
static bool is_tuned(const struct options *options, const char *line, const char *lead)
{
    if (strncmp(line, lead, strlen(lead)) != 0) return false;
    line += strlen(lead);
    for (int i = 0; bench_ops[i].name; i++) {
        size_t n = strlen(bench_ops[i].name);
        if (options->op[i] && strncmp(line, bench_ops[i].name, n) == 0 && line[n] == ' ') return true;
    }
    return false;
}

/* Copies the rows of the existing file that this run does not replace.  Returns false if it is not a tuning file. */
static bool keep(const struct options *options, const char *lead, FILE *out)
{
    char line[TUNE_LINE_MAX];
    FILE *old = fopen(options->tune, "re");
    if (old == NULL) return errno == ENOENT;
    bool good = fgets(line, sizeof line, old) == NULL || strcmp(line, TUNE_FIRST_LINE "\n") == 0;
    while (good && fgets(line, sizeof line, old) != NULL)
        if (line[0] != '#' && line[0] != '\n' && !is_tuned(options, line, lead)) fputs(line, out);
    fclose(old);
    return good;
}

/* Writes the file under another name first, so that a reader finds either the old file or the new one.  Returns NULL,
 * or the reason of a failure. */
static const char *write_file(const struct options *options, const char *lead, const char *rows)
{
    char path[4096];
    const char *why = NULL;
    if (snprintf(path, sizeof path, "%s.%d", options->tune, (int)getpid()) >= (int)sizeof path)
        return "the file's name is too long";
    signal(SIGXFSZ, SIG_IGN); /* write reports an error at the file size limit */
    FILE *out = fopen(path, "wxe");
    if (out == NULL) return strerror(errno);
    fputs(TUNE_FIRST_LINE "\n# backend ranks hosts operation bytes algorithm\n", out);
    if (!keep(options, lead, out)) why = "the file exists and does not begin with \"" TUNE_FIRST_LINE "\"";
    fputs(rows, out);
    if (!why && (ferror(out) || fflush(out) != 0 || fsync(fileno(out)) != 0)) why = strerror(errno);
    fclose(out);
    if (!why && rename(path, options->tune) != 0) why = strerror(errno);
    if (why) unlink(path);
    return why;
}

/* True if Tutti can choose the operation's algorithm on the world's backend. */
static bool has_choice(tutti_kind kind)
{
    char text[4096];
    return tutti_explain(kind, 4, NULL, text, sizeof text) == TUTTI_OK && strstr(text, "\nalgorithm ") != NULL;
}

bool tune(const struct options *options, bench_case_maker *make_case)
{
    char lead[DESCRIPTION_MAX], *text = NULL;
    size_t bytes = 0;
    bool right = true;
    FILE *rows = open_memstream(&text, &bytes);
    if (rows == NULL) options_refuse("no memory");
    alternatives_world(lead);
    if (tutti_get_rank(NULL) == 0)
        printf("# tutti %s: tuning %s(backend, ranks, hosts); times in us, the slowest rank's mean\n", tutti_version(),
               lead);
    for (int i = 0; bench_ops[i].name; i++) {
        const struct bench_op *op = &bench_ops[i];
        if (!options->op[i] || op->kind < 0 || !tutti_kind_is_collective((tutti_kind)op->kind)) continue;
        if (tutti_algorithm_name((tutti_kind)op->kind, 0) == NULL) continue;
        if (!has_choice((tutti_kind)op->kind))
            options_refuse("--tune: backend %s implements %s itself, so there is nothing to choose",
                           tutti_get_backend(NULL), op->name);
        tune_op(options, op, lead, rows, make_case, &right);
    }
    fclose(rows);
    const char *why = right ? NULL : "a result was wrong";
    if (!why && tutti_get_rank(NULL) == 0) why = write_file(options, lead, text);
    if (why) fprintf(stderr, "tutti-bench: --tune: cannot write %s: %s\n", options->tune, why);
    free(text);
    return why == NULL;
}
