#include "bench/tune.h"
#include "bench/measure.h"
#include "bench/memory.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define TUNE_FIRST_LINE "tutti tuning 1"

/* minimum gain of an algorithm over the one for the next smaller size */
static const double margin = 0.95;

enum { TUNE_LINE_MAX = 256, TUNE_ALGORITHMS = 16 };

/* Returns the beginning of this world's rows: "tcp 4 1 ". */
static void describe(char *text, size_t capacity)
{
    char backend[64];
    const char *name = tutti_get_backend(NULL), *colon = strchr(name, ':');
    snprintf(backend, sizeof backend, "%s", colon ? colon + 1 : name);
    backend[strcspn(backend, "|,")] = '\0';
    int hosts = 1, ranks = tutti_get_world_size(NULL);
    for (int i = 0; i < ranks; i++) hosts = tutti_get_host(NULL, i) >= hosts ? tutti_get_host(NULL, i) + 1 : hosts;
    snprintf(text, capacity, "%s %d %d ", backend, ranks, hosts);
}

/* ---- measuring ---------------------------------------------------------------------------------------------- */

static bool ranks_fit(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) >= tutti_get_world_size(NULL);
}

/* True if the case's group runs the case by this algorithm.  A backend's path may not be possible for the size. */
static bool is_taken(const struct bench_case *c, const char *algorithm)
{
    char text[4096], line[128];
    snprintf(line, sizeof line, "\nalgorithm %s:", algorithm);
    TUTTI_CHECK(tutti_explain((tutti_kind)c->op->kind, c->bytes, tutti_with(.group = c->group), text, sizeof text));
    return strstr(text, line) != NULL;
}

static double measure_once(const struct options *options, struct bench_case *c, bool *right)
{
    struct result result = {0};
    c->in = memory_new(bench_numel(c), options->dtype->dtype, false);
    c->out = memory_new(bench_numel(c), options->dtype->dtype, false);
    data_fill(&c->data, c->rank, c->in);
    TUTTI_CHECK(measure(c, options->milliseconds, &result));
    memory_free(c->in, false);
    memory_free(c->out, false);
    *right &= result.wrong == 0;
    return ranks_fit() ? result.us : result.mean;
}

/* Measures the case in a group that knows this algorithm alone.  Returns the time, alike on all ranks, or -1 if the
 * algorithm cannot do the case. */
static double time_of(const struct options *options, struct bench_case *c, const char *algorithm, bool *right)
{
    char name[128];
    int ranks[c->ranks];
    for (int i = 0; i < c->ranks; i++) ranks[i] = i;
    snprintf(name, sizeof name, "%s=%s", c->op->name, algorithm);
    TUTTI_CHECK(tutti_new_group(ranks, c->ranks, &(tutti_group_opts){.algorithm = name}, &c->group));
    double took = is_taken(c, algorithm) ? measure_once(options, c, right) : -1;
    TUTTI_CHECK(tutti_destroy_process_group(c->group));
    return took;
}

/* Returns the fastest algorithm.  Keeps `before`, that of the next smaller size, unless another is clearly faster. */
static const char *fastest(const struct options *options, struct bench_case *c, const char *before, bool *right)
{
    const char *best = NULL, *name;
    double took[TUNE_ALGORITHMS], least = 0;
    int n = 0;
    for (; n < TUNE_ALGORITHMS && (name = tutti_algorithm_name((tutti_kind)c->op->kind, n)) != NULL; n++) {
        took[n] = time_of(options, c, name, right);
        if (before == NULL || strcmp(name, before) != 0 || took[n] < 0) continue;
        best = before;
        least = took[n] * margin;
    }
    if (c->rank == 0) printf("  %-14s %11lld", c->op->name, (long long)c->bytes);
    for (int i = 0; i < n; i++) {
        if (took[i] < 0) continue;
        name = tutti_algorithm_name((tutti_kind)c->op->kind, i);
        if (c->rank == 0) printf("  %s %.1f", name, took[i]);
        if (best != NULL && took[i] >= least) continue;
        best = name;
        least = took[i];
    }
    if (c->rank == 0) printf("  -> %s\n", best);
    fflush(stdout);
    return best;
}

/* Returns the middle of two sizes on a logarithmic scale. */
static int64_t between(int64_t low, int64_t high)
{
    return (int64_t)sqrt((double)(low > 0 ? low : 1) * (double)high);
}

/* Writes the rows of one operation. */
static void tune_op(const struct options *options, const struct bench_op *op, const char *lead, FILE *rows,
                    struct bench_case (*make_case)(const struct options *, const struct bench_op *, int64_t),
                    bool *right)
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

bool tune(const struct options *options,
          struct bench_case (*make_case)(const struct options *options, const struct bench_op *op, int64_t bytes))
{
    char lead[128], *text = NULL;
    size_t bytes = 0;
    bool right = true;
    FILE *rows = open_memstream(&text, &bytes);
    if (rows == NULL) options_refuse("no memory");
    describe(lead, sizeof lead);
    if (tutti_get_rank(NULL) == 0)
        printf("# tutti %s: tuning %s(backend, ranks, hosts); times in us, the slowest rank's, %s\n", tutti_version(),
               lead, ranks_fit() ? "median" : "mean, as ranks share cores");
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
