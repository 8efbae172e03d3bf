/* tutti-trace: reads what the ranks of a job have recorded: docs/flight-recorder.md, docs/trace.md.
 *
 * Exit status: that of the subcommand; 2 if the command line was refused. */
#include <string.h>

#include "trace/commands.h"

static const struct cli *const commands[] = {&trace_stuck_cli, &trace_merge_cli, &trace_report_cli, NULL};

static const struct cli cli = {
    .program = "tutti-trace",
    .usage = "tutti-trace COMMAND ..",
    .summary = "Reads what the ranks of a job have recorded.",
    .end = "tutti-trace COMMAND --help describes a command.",
    .commands = commands,
};

int main(int argc, char **argv)
{
    static int (*const run[])(int, char **) = {trace_stuck, trace_merge, trace_report};
    const char *names[sizeof run / sizeof *run];
    int first = 0, n = 0, status = cli_parse(&cli, argc, argv, NULL, &first);
    if (status != CLI_GO_ON) return status;
    const char *name = first < argc ? argv[first] : "";
    for (; commands[n]; n++) {
        if (strcmp(name, commands[n]->command) == 0) return run[n](argc - first, argv + first);
        names[n] = commands[n]->command;
    }
    const char *nearest = cli_nearest(name, names, n);
    if (nearest)
        cli_refuse(&cli, "\"%s\" is not a command; did you mean %s?", name, nearest);
    else
        cli_refuse(&cli, "\"%s\" is not a command", name);
    return CLI_USAGE;
}
