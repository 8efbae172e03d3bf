/* tutti-trace: reads what the ranks of a job have recorded: docs/flight-recorder.md, docs/trace.md.
 *
 * Exit status: that of the subcommand; 2 if the command line was refused. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#include "trace/commands.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"stuck", trace_stuck, "DIR               where each rank stands, by the files of TUTTI_RECORD_DIR"},
    {"merge", trace_merge, "DIR [-o FILE]     one time line of all ranks, for Perfetto and chrome://tracing"},
    {"report", trace_report, "DIR [--svg FILE]  stragglers, and the shares of waiting, transfer and reduction"},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static int print_help(void)
{
    printf("usage: tutti-trace COMMAND ..\n\n");
    for (int i = 0; i < COMMANDS; i++) printf("  %-7s %s\n", commands[i].name, commands[i].help);
    printf("\ntutti-trace COMMAND --help describes a command; tutti-trace --version prints the version.\n");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'v'}, {NULL, 0, NULL, 0}};
    int letter = getopt_long(argc, argv, "+h", options, NULL); /* +: a command's options are its own */
    if (letter == 'h') return print_help();
    if (letter == 'v') return printf("tutti-trace %s\n", tutti_version()) < 0;
    if (letter != -1) return 2; /* getopt_long has said why */
    const char *name = optind < argc ? argv[optind] : "";
    char **rest = argv + optind;
    int n = argc - optind;
    optind = 0; /* makes getopt_long start anew */
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0) return commands[i].run(n, rest);
    fprintf(stderr, "tutti-trace: \"%s\" is not a command; see --help\n", name);
    return 2;
}
