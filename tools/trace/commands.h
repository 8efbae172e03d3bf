/* The subcommands of tutti-trace.  argv[0] is the subcommand's name.  Each returns the program's exit status. */
#ifndef TRACE_COMMANDS_H
#define TRACE_COMMANDS_H

#include "common/cli.h"

extern const struct cli trace_stuck_cli, trace_merge_cli, trace_report_cli;

int trace_stuck(int argc, char **argv);
int trace_merge(int argc, char **argv);
int trace_report(int argc, char **argv);

#endif
