#include "bench/report.h"

#include "common/doc.h"
#include "common/output.h"

#include <stdlib.h>

static doc *document, *results; /* of --json */

/* Begins the document, which the results of all backends go into. */
static void begin_document(const struct options *options, int ranks)
{
    if (document) return;
    document = doc_begin("tutti-bench");
    doc_text(document, "name", options->name);
    doc_int(document, "ranks", ranks);
    doc_text(document, "dtype", tutti_dtype_name(options->dtype->dtype));
    doc_text(document, "reduce_op", options->reduce_op_name);
    doc_bool(document, "async", options->async);
    doc_text(document, "alloc", options->from_tutti ? "tutti" : "system");
    results = doc_set(document, "results", doc_array());
}

bool report_end(const struct options *options)
{
    if (!options->json) return true;
    bool written = doc_write(document, output_data());
    if (!written) fprintf(stderr, "tutti-bench: --json: cannot write the document\n");
    document = NULL;
    return written;
}

double report_bandwidth(const struct bench_case *c, const struct result *result)
{
    double moved = (double)bench_numel(c) * (double)tutti_dtype_bytes(c->in.dtype);
    return result->mean > 0 ? moved / result->mean / 1e3 : 0;
}

static void add_result(const struct bench_case *c, const struct result *result, const char *reason)
{
    doc *object = doc_add(results, doc_object());
    doc_text(object, "backend", tutti_get_backend(NULL));
    doc_text(object, "op", c->op->name);
    doc_int(object, "bytes", c->bytes);
    doc_int(object, "count", c->count);
    if (!result) {
        doc_text(object, "unsupported", reason);
        return;
    }
    doc_real(object, "us", result->us);
    doc_real(object, "us_mean", result->mean);
    doc_real(object, "us_min", result->min);
    doc_real(object, "us_p95", result->p95);
    doc_real(object, "algbw", report_bandwidth(c, result));
    doc_real(object, "busbw", report_bandwidth(c, result) * c->op->bus(c->ranks));
    doc_int(object, "iterations", result->iterations);
    doc_int(object, "wrong", result->wrong);
}

void report_begin(const struct options *options, int ranks)
{
    if (options->json) begin_document(options, ranks);
    if (options->csv || options->json) return;
    printf("# tutti %s: %d ranks, %s, %s%s; times in us, the slowest rank's; bandwidths in GB/s, from the mean\n",
           tutti_version(), ranks, tutti_get_backend(NULL), options->reduce_op_name, options->async ? ", async" : "");
    printf("# %-19s %11s %11s %-13s %10s %10s %10s %10s %8s %8s %6s\n", "op", "bytes", "count", "type", "us", "mean",
           "min", "p95", "algbw", "busbw", "wrong");
}

static void print_csv(const struct options *options, const struct bench_case *c, const struct result *result)
{
    FILE *stream = output_data();
    fprintf(stream, "%s,%s,%d,%lld,%.3f,%.3f,%.3f,%.3f,%d,%s\n", options->name, c->op->name, c->ranks,
            (long long)c->bytes, result->us, result->mean, result->min, result->p95, result->iterations,
            result->wrong ? "BAD" : "ok");
    fflush(stream);
}

void report_case(const struct options *options, const struct bench_case *c, const struct result *result,
                 const char *reason)
{
    if (options->csv) {
        if (result) print_csv(options, c, result);
        return;
    }
    if (options->json) {
        add_result(c, result, reason);
        return;
    }
    printf("  %-19s %11lld %11lld %-13s", c->op->name, (long long)c->bytes, (long long)c->count,
           tutti_dtype_name(options->dtype->dtype));
    if (result) {
        double bandwidth = report_bandwidth(c, result);
        printf(" %10.2f %10.2f %10.2f %10.2f %8.3f %8.3f %6lld\n", result->us, result->mean, result->min, result->p95,
               bandwidth, bandwidth * c->op->bus(c->ranks), (long long)result->wrong);
    } else {
        printf(" not supported: %s\n", reason);
    }
    fflush(stdout);
}
