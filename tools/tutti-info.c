/* tutti-info: prints what Tutti finds on this machine, and what it uses in a job.
 *
 *     tutti-info                                  the machine: version, cores, backends and what each has found
 *     tutti-run -n 4 tutti-info [--backend B]     also the world: each rank's host, what its backends use, and the
 *                                                 algorithms by size
 *     tutti-run -n 2 tutti-info --support [--backend B]
 *                                                 which operations, dtypes and reduce ops the backend supports
 *     tutti-info --watch PID [--interval S] [--count N]
 *                                                 the counters of a running job: docs/tools.md
 *
 * Exit status: 0; 1 if the world could not be made, or there is no such job; 2 if the command line was refused.
 */
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include "common/cli.h"
#include "common/output.h"
#include "info/describe.h"
#include "info/support.h"
#include "info/watch.h"

struct options {
    const char *backend, *watch;
    double interval_s;
    long long count;
    bool json, support;
};

enum { BACKEND, WATCH, INTERVAL, COUNT, JSON, SUPPORT };

static const struct cli_option table[] = {
    {"backend", "B", "tcp mpi nccl auto", "tcp, mpi, nccl, or a map as tutti_init_process_group takes it (tcp)", 0,
     BACKEND},
    {"json", NULL, NULL, "print a document in JSON: docs/json.md", 0, JSON},
    {"support", NULL, NULL, "print which operations, dtypes and reduce ops the backend supports, instead of the world",
     0, SUPPORT},
    {"watch", "PID", NULL, "show the counters of a running job, of which PID is tutti-run or a rank, until it ends", 0,
     WATCH},
    {"interval", "S", NULL, "seconds between two tables of --watch (1)", 0, INTERVAL},
    {"count", "N", NULL, "the number of tables (0: no limit)", 0, COUNT},
    {0}};

static bool set(void *target, int id, const char *value);

static const struct cli cli = {
    .program = "tutti-info",
    .usage = "tutti-info, tutti-run -n RANKS tutti-info [--backend B], or tutti-info --watch PID",
    .summary = "Prints what Tutti finds on this machine and, under a launcher, what it uses in that world.",
    .options = table,
    .set = set,
};

static bool set(void *target, int id, const char *value)
{
    struct options *options = target;
    if (id == INTERVAL) return cli_real(&cli, "interval", value, 0.01, 3600, &options->interval_s);
    if (id == COUNT) return cli_int(&cli, "count", value, 0, 1 << 30, &options->count);
    if (id == JSON) return options->json = true;
    if (id == SUPPORT) return options->support = true;
    *(id == BACKEND ? &options->backend : &options->watch) = value;
    return true;
}

/* Describes the machine and, under a launcher, the world. */
static int describe(const struct options *options)
{
    const char *rank = getenv("RANK");
    bool speaks = rank == NULL || strcmp(rank, "0") == 0;
    doc *document = options->json && speaks ? doc_begin("tutti-info") : NULL;
    if (speaks) {
        describe_machine(document);
        describe_backends(document);
    }
    if (rank != NULL) {
        TUTTI_CHECK(tutti_init_process_group(options->backend, NULL));
        describe_world(document);
        if (tutti_destroy_process_group(NULL) != TUTTI_OK) return 1;
    }
    return document != NULL && !doc_write(document, output_data());
}

static int try_support(const char *backend)
{
    TUTTI_CHECK(tutti_init_process_group(backend, NULL));
    if (tutti_get_world_size(NULL) < 2) {
        cli_refuse(&cli, "--support needs 2 ranks: tutti-run -n 2 tutti-info --support");
        return CLI_USAGE;
    }
    int failed = print_support();
    return tutti_destroy_process_group(NULL) == TUTTI_OK ? failed : 1;
}

int main(int argc, char **argv)
{
    struct options options = {.backend = "tcp", .interval_s = 1};
    int first = 0, status = cli_parse(&cli, argc, argv, &options, &first);
    if (status != CLI_GO_ON) return status;
    if (first < argc) {
        cli_refuse(&cli, "unexpected argument \"%s\"", argv[first]);
        return CLI_USAGE;
    }
    if (options.json && options.watch) {
        cli_refuse(&cli, "--watch prints tables, without --json");
        return CLI_USAGE;
    }
    if (options.json && !doc_is_possible("tutti-info", "--json")) return CLI_USAGE;
    if (options.support) return try_support(options.backend);
    if (options.watch) return watch_job(options.watch, (int)(options.interval_s * 1000), (int)options.count);
    return describe(&options);
}
