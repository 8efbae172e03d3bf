#include "bench/report.h"

#include <fcntl.h>
#include <stdlib.h>

FILE *report_csv(void)
{
    static FILE *stream;
    if (stream) return stream;
    const char *text = getenv("TUTTI_STDOUT_FD");
    char *end = NULL;
    long fd = text && *text ? strtol(text, &end, 10) : -1;
    if (end && *end == '\0' && fd >= 0 && fd < 1 << 20) {
        int flags = fcntl((int)fd, F_GETFL);
        if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY) stream = fdopen((int)fd, "w");
    }
    if (!stream) stream = stdout;
    return stream;
}

void report_begin(const struct options *options, int ranks)
{
    if (options->csv) return;
    printf("# tutti %s: %d ranks, %s, %s%s; times in us, the slowest rank's; bandwidths in GB/s, from the mean\n",
           tutti_version(), ranks, tutti_get_backend(NULL), options->reduce_op_name, options->async ? ", async" : "");
    printf("# %-19s %11s %11s %-13s %10s %10s %10s %10s %8s %8s %6s\n", "op", "bytes", "count", "type", "us", "mean",
           "min", "p95", "algbw", "busbw", "wrong");
}

static void print_csv(const struct options *options, const struct bench_case *c, const struct result *result)
{
    FILE *stream = report_csv();
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
    printf("  %-19s %11lld %11lld %-13s", c->op->name, (long long)c->bytes, (long long)c->count,
           tutti_dtype_name(options->dtype->dtype));
    if (result) {
        double moved = (double)bench_numel(c) * (double)tutti_dtype_bytes(options->dtype->dtype);
        double bandwidth = result->mean > 0 ? moved / result->mean / 1e3 : 0;
        printf(" %10.2f %10.2f %10.2f %10.2f %8.3f %8.3f %6lld\n", result->us, result->mean, result->min, result->p95,
               bandwidth, bandwidth * c->op->bus(c->ranks), (long long)result->wrong);
    } else {
        printf(" not supported: %s\n", reason);
    }
    fflush(stdout);
}
