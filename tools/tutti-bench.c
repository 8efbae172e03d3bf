/* tutti-bench: measures how fast the operations are on this machine, and checks their results.
 *
 *     tutti-run -n 4 tutti-bench --ops all_reduce,broadcast --sizes 4,64K,32M
 *
 * Exit status: 0; 1 if a result was wrong or an operation failed; 2 if the command line was refused.
 */
#include <string.h>

#include "bench/alternatives.h"
#include "bench/compare.h"
#include "bench/memory.h"
#include "bench/plot.h"
#include "bench/regret.h"
#include "bench/report.h"
#include "bench/series.h"
#include "bench/tune.h"
#include "common/output.h"

static struct series_set drawn;  /* --plot: a series for each backend */
static struct progress progress; /* rank 0's */

static struct bench_case make_case(const struct options *options, const struct bench_op *op, int64_t bytes)
{
    static uint32_t seed;
    int64_t element = tutti_dtype_bytes(options->dtype->dtype);
    struct bench_case c = {.op = op, .rank = tutti_get_rank(NULL), .ranks = tutti_get_world_size(NULL), .bytes = bytes};
    if (bytes > 0) {
        c.count = bytes < element ? 1 : bytes / element;
        c.chunk = c.count < c.ranks ? 1 : c.count / c.ranks;
    }
    c.async = options->async ||
              tutti_get_device(NULL).type != TUTTI_CPU; /* on CUDA a call may return before the operation is complete */
    c.data = data_make(options->dtype, options->reduce_op, op->reduces, c.ranks, ++seed);
    return c;
}

/* Counts the cases of all backends. */
static int count_cases(const struct options *options)
{
    int n = 0;
    for (int i = 0; bench_ops[i].name; i++)
        if (options->op[i]) n += bench_ops[i].sized ? options->sizes : 1;
    return n * options->backends;
}

static void say_progress(const struct bench_case *c)
{
    char what[64];
    snprintf(what, sizeof what, "%s of %lld bytes", c->op->name, (long long)c->bytes);
    progress_step(&progress, what);
}

/* Writes a backend's label: its name, and a number if it is measured again. */
static void label_of(const struct options *options, int backend, char *label, size_t bytes)
{
    int before = 0;
    for (int i = 0; i < backend; i++) before += strcmp(options->backend[i], options->backend[backend]) == 0;
    if (before)
        snprintf(label, bytes, "%s (%d)", options->backend[backend], before + 1);
    else
        snprintf(label, bytes, "%s", options->backend[backend]);
}

/* Adds a point to the curve of a backend. */
static void keep_point(const struct options *options, int backend, const struct bench_case *c,
                       const struct result *result)
{
    char label[SERIES_TEXT_MAX];
    struct point point = {.bytes = c->bytes,
                          .us = result->us,
                          .p95 = result->p95,
                          .busbw = report_bandwidth(c, result) * c->op->bus(c->ranks)};
    snprintf(point.op, sizeof point.op, "%s", c->op->name);
    label_of(options, backend, label, sizeof label);
    struct series *series = series_find(&drawn, label);
    if (!series || !series_add(series, &point)) options_refuse("no memory");
    snprintf(drawn.title, sizeof drawn.title,
             "tutti %s, %d ranks, %s: median time, up to the 95th percentile, and bandwidth", tutti_version(), c->ranks,
             tutti_dtype_name(c->in.dtype));
}

/* Measures and prints one case.  Returns true if its results were right. */
static bool run_case(const struct options *options, int backend, const struct bench_op *op, int64_t bytes)
{
    struct bench_case c = make_case(options, op, bytes);
    struct result result;
    c.in = memory_new(bench_numel(&c), options->dtype->dtype, options->from_tutti);
    c.out = memory_new(bench_numel(&c), options->dtype->dtype, options->from_tutti);
    data_fill(&c.data, c.rank, c.in);
    if (c.rank == 0) say_progress(&c);
    int status = measure(&c, options->milliseconds, &result);
    if (c.rank == 0) progress_clear(&progress);
    if (c.rank == 0) report_case(options, &c, status < 0 ? NULL : &result, tutti_last_error());
    if (c.rank == 0 && status == TUTTI_OK && options->plot) keep_point(options, backend, &c, &result);
    memory_free(c.in, options->from_tutti);
    memory_free(c.out, options->from_tutti);
    return status < 0 || result.wrong == 0;
}

static bool run_cases(const struct options *options, int backend)
{
    bool right = true;
    if (tutti_get_rank(NULL) == 0) report_begin(options, tutti_get_world_size(NULL));
    if (tutti_get_rank(NULL) == 0 && backend == 0) progress_begin(&progress, count_cases(options), options->progress);
    for (int i = 0; bench_ops[i].name; i++) {
        if (!options->op[i]) continue;
        for (int k = 0; k < (bench_ops[i].sized ? options->sizes : 1); k++)
            right &= run_case(options, backend, &bench_ops[i], bench_ops[i].sized ? options->size[k] : 0);
    }
    return right;
}

/* Runs the operation first: a measured choice has nothing to explain before that. */
static bool explain(const struct options *options)
{
    static char text[16384];
    bool right = true;
    struct bench_case c = make_case(options, options->explain, options->explain_bytes);
    alternatives_time(options, &c, NULL, &right);
    if (tutti_get_rank(NULL) != 0) return right;
    TUTTI_CHECK(tutti_explain((tutti_kind)options->explain->kind, options->explain_bytes, NULL, text, sizeof text));
    fputs(text, stdout);
    TUTTI_CHECK(tutti_describe_group(NULL, text, sizeof text));
    fputs(text, stdout);
    return right;
}

/* Measures all cases on one backend.  Returns true if all results were right. */
static bool run_backend(const struct options *options, int backend)
{
    TUTTI_CHECK(tutti_init_process_group(options->backend[backend], NULL));
    int ranks = tutti_get_world_size(NULL);
    if (options->ranks && options->ranks != ranks)
        options_refuse("--ranks says %d, but this world has %d ranks", options->ranks, ranks);
    bool right = options->explain  ? explain(options)
                 : options->tune   ? tune(options, make_case)
                 : options->regret ? regret(options, make_case)
                                   : run_cases(options, backend);
    bool speaks = tutti_get_rank(NULL) == 0;
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    bool last = backend == options->backends - 1;
    bool measured = !options->explain && !options->tune && !options->regret;
    if (speaks && last && measured) right &= report_end(options);
    if (speaks && last && measured && options->plot) right &= plot_draw(options, &drawn);
    return right;
}

int main(int argc, char **argv)
{
    struct options options;
    bool right = true;
    options_parse(argc, argv, &options);
    plot_check(&options);
    if (options.compare[0]) return compare_files(&options) ? 0 : 1;
    for (int i = 0; i < options.backends; i++) right &= run_backend(&options, i);
    return right ? 0 : 1;
}
