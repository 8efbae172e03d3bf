/* tutti-trace: reads what a job has recorded.  See docs/trace.md.
 *
 * Exit status: that of the subcommand; 2 if the command line was refused. */
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>

#include "trace/commands.h"

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"merge", trace_merge, "DIR [-o FILE]      one time line of all ranks, for Perfetto and chrome://tracing"},
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
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0) return print_help();
    if (strcmp(name, "--version") == 0) return printf("tutti-trace %s\n", tutti_version()) < 0;
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    fprintf(stderr, "tutti-trace: \"%s\" is not a command; see --help\n", name);
    return 2;
}
