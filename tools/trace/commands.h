/* The subcommands of tutti-trace.  argv[0] is the subcommand's name.  Each returns the program's exit status. */
#ifndef TRACE_COMMANDS_H
#define TRACE_COMMANDS_H

int trace_stuck(int argc, char **argv);
int trace_merge(int argc, char **argv);
int trace_report(int argc, char **argv);

#endif
