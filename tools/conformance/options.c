#include "conformance/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli.h"
#include "common/doc.h"
#include "conformance/suite.h"

enum id {
    BACKEND,
    RANKS,
    FILTER,
    QUICK,
    HUGE_,
    THREADS,
    PROCESSES,
    JOIN,
    DEVICE,
    JUNIT,
    JSON,
    LIST,
    SEED,
    TIMEOUT,
    PROGRESS
};

static const struct cli_option table[] = {
    {"backend", "B", "tcp mpi nccl", "a plug-in's name or absolute path (tcp)", 0, BACKEND},
    {"ranks", "N|N..M", NULL, "numbers of ranks, one launch each (--quick: 1..4, otherwise 1..8)", 0, RANKS},
    {"filter", "TEXT", NULL, "only cases whose name contains TEXT; =TEXT: only the case of this name", 0, FILTER},
    {"quick", NULL, NULL, "fewer sizes and combinations", 0, QUICK},
    {"huge", NULL, NULL, "add messages of more than 2 GiB", 0, HUGE_},
    {"threads", NULL, NULL, "run ranks as threads of one process", 0, THREADS},
    {"processes", NULL, NULL, "run ranks as processes (the default)", 0, PROCESSES},
    {"join", NULL, NULL, "be one rank of a job that tutti-run, mpirun, mpiexec or srun started; rank 0 reports", 0,
     JOIN},
    {"device", "D", "cpu cuda",
     "cpu; cuda: only collectives, in device memory that the host can read (stand-ins for CUDA)", 0, DEVICE},
    {"junit", "FILE", CLI_FILE, "write a JUnit report", 0, JUNIT},
    {"json", NULL, NULL, "print a document in JSON instead of the report: docs/json.md", 0, JSON},
    {"list", NULL, NULL, "list the cases, and the rules with the number of their cases", 0, LIST},
    {"seed", "S", NULL, "seed of the inputs (1)", 0, SEED},
    {"timeout", "MS", NULL, "timeout of one operation (20000)", 0, TIMEOUT},
    {"progress", NULL, NULL, "say how far it is on stderr, also where that is no terminal", 0, PROGRESS},
    {0}};

static bool set(void *target, int id, const char *value);

static const struct cli cli = {
    .program = "tutti-conformance",
    .usage = "tutti-conformance [options]",
    .summary = "Tests that a backend follows every rule of the operations.",
    .options = table,
    .end = "Exit status: 0 all cases passed or were skipped, 1 a case failed or a rule had no case, 2 wrong arguments.",
    .set = set,
};

_Noreturn static void refuse(const char *what, const char *text)
{
    fprintf(stderr, "tutti-conformance: %s \"%s\"; see --help\n", what, text);
    exit(2);
}

static void parse_ranks(struct options *options, const char *text)
{
    int used = 0, fields = sscanf(text, "%d..%d%n", &options->from_ranks, &options->to_ranks, &used);
    if (fields == 1) {
        sscanf(text, "%d%n", &options->from_ranks, &used);
        options->to_ranks = options->from_ranks;
    }
    if (fields < 1 || text[used] != '\0' || options->from_ranks < 1 || options->to_ranks < options->from_ranks ||
        options->to_ranks > RANKS_MAX)
        refuse("--ranks takes N or N..M, from 1 to 16, not", text);
}

static uint64_t parse_number(const char *what, const char *text)
{
    char *end = NULL;
    uint64_t value = strtoull(text, &end, 0);
    if (end == text || *end != '\0') refuse(what, text);
    return value;
}

static void set_device(struct options *options, const char *value)
{
    options->cuda = strcmp(value, "cuda") == 0;
    if (!options->cuda && strcmp(value, "cpu") != 0) refuse("--device is cpu or cuda, not", value);
}

static void set_flag(struct options *options, int id)
{
    if (id == THREADS || id == PROCESSES) {
        options->threads = id == THREADS;
        return;
    }
    bool *const flags[] = {[QUICK] = &options->quick, [HUGE_] = &options->huge, [JOIN] = &options->join,
                           [JSON] = &options->json,   [LIST] = &options->list,  [PROGRESS] = &options->progress};
    *flags[id] = true;
}

static bool set(void *target, int id, const char *value)
{
    struct options *options = target;
    if (!value)
        set_flag(options, id);
    else if (id == BACKEND)
        options->backend = value;
    else if (id == RANKS)
        parse_ranks(options, value);
    else if (id == FILTER)
        options->filter = value;
    else if (id == JUNIT)
        options->junit = value;
    else if (id == DEVICE)
        set_device(options, value);
    else if (id == SEED)
        options->seed = parse_number("--seed takes a number, not", value);
    else
        options->timeout_ms = (int64_t)parse_number("--timeout takes milliseconds, not", value);
    return true;
}

void options_parse(struct options *options, int argc, char **argv)
{
    *options = (struct options){.backend = "tcp", .seed = 1, .timeout_ms = 20000};
    int first = 0, status = cli_parse(&cli, argc, argv, options, &first);
    if (status != CLI_GO_ON) exit(status);
    if (first < argc) refuse("unexpected argument", argv[first]);
    if (options->join && (options->threads || options->from_ranks != 0))
        refuse("--join runs as a process that a launcher started and cannot be used with",
               options->threads ? "--threads" : "--ranks");
    if (options->json && options->list) refuse("--list prints names, without", "--json");
    if (options->json && !doc_is_possible("tutti-conformance", "--json")) exit(2);
    if (options->from_ranks == 0) options->from_ranks = 1, options->to_ranks = options->quick ? 4 : 8;
}
