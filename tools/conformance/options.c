#include "conformance/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/suite.h"

static const char help[] =
    "usage: tutti-conformance [options]\n"
    "Tests that a backend follows every rule of the operations.\n\n"
    "  --backend B     a plug-in's name or absolute path (tcp)\n"
    "  --ranks N|N..M  numbers of ranks, one launch each (--quick: 1..4, otherwise 1..8)\n"
    "  --filter TEXT   only cases whose name contains TEXT; =TEXT: only the case of this name\n"
    "  --quick         fewer sizes and combinations\n"
    "  --huge          add messages of more than 2 GiB\n"
    "  --threads       run ranks as threads of one process; --processes (the default): as processes\n"
    "  --join          be one rank of a job that tutti-run, mpirun, mpiexec or srun started; rank 0 reports\n"
    "  --device D      cpu; cuda: only collectives, in device memory that the host can read (stand-ins for CUDA)\n"
    "  --junit FILE    write a JUnit report\n"
    "  --list          list the cases, and the rules with the number of their cases\n"
    "  --seed S        seed of the inputs (1)\n"
    "  --timeout MS    timeout of one operation (20000)\n\n"
    "Exit status: 0 all cases passed or were skipped, 1 a case failed or a rule had no case, 2 wrong arguments.\n";

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

enum { BACKEND = 1, RANKS, FILTER, QUICK, HUGE_, THREADS, PROCESSES, JUNIT, LIST, SEED, TIMEOUT, HELP, JOIN, DEVICE };

/* Sets one option.  `value` is NULL if the option takes none. */
static void set(struct options *options, int option, const char *value)
{
    switch (option) {
    case BACKEND:
        options->backend = value;
        break;
    case RANKS:
        parse_ranks(options, value);
        break;
    case FILTER:
        options->filter = value;
        break;
    case QUICK:
        options->quick = true;
        break;
    case HUGE_:
        options->huge = true;
        break;
    case THREADS:
    case PROCESSES:
        options->threads = option == THREADS;
        break;
    case JUNIT:
        options->junit = value;
        break;
    case LIST:
        options->list = true;
        break;
    case JOIN:
        options->join = true;
        break;
    case DEVICE:
        options->cuda = strcmp(value, "cuda") == 0;
        if (!options->cuda && strcmp(value, "cpu") != 0) refuse("--device is cpu or cuda, not", value);
        break;
    case SEED:
        options->seed = parse_number("--seed takes a number, not", value);
        break;
    case TIMEOUT:
        options->timeout_ms = (int64_t)parse_number("--timeout takes milliseconds, not", value);
        break;
    case HELP:
    case 'h':
        fputs(help, stdout);
        exit(0);
    default:
        exit(2);
    }
}

void options_parse(struct options *options, int argc, char **argv)
{
    static const struct option names[] = {
        {"backend", 1, NULL, BACKEND}, {"ranks", 1, NULL, RANKS},         {"filter", 1, NULL, FILTER},
        {"quick", 0, NULL, QUICK},     {"huge", 0, NULL, HUGE_},          {"threads", 0, NULL, THREADS},
        {"junit", 1, NULL, JUNIT},     {"list", 0, NULL, LIST},           {"join", 0, NULL, JOIN},
        {"device", 1, NULL, DEVICE},   {"seed", 1, NULL, SEED},           {"help", 0, NULL, HELP},
        {"timeout", 1, NULL, TIMEOUT}, {"processes", 0, NULL, PROCESSES}, {NULL, 0, NULL, 0}};
    *options = (struct options){.backend = "tcp", .seed = 1, .timeout_ms = 20000};
    for (int option; (option = getopt_long(argc, argv, "h", names, NULL)) != -1;) set(options, option, optarg);
    if (optind < argc) refuse("unexpected argument", argv[optind]);
    if (options->join && (options->threads || options->from_ranks != 0))
        refuse("--join runs as a process that a launcher started and cannot be used with",
               options->threads ? "--threads" : "--ranks");
    if (options->from_ranks == 0) options->from_ranks = 1, options->to_ranks = options->quick ? 4 : 8;
}
