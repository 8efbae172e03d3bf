/* The subcommands of tutti-trace, each in a file of its own.  argv[0] is the subcommand's name.  Each returns the exit
 * status: 0; 1 if there was nothing to report on; 2 if the command line was refused. */
#ifndef TRACE_H
#define TRACE_H

/* stuck FOLDER: says where each rank stands, by the flight recorder's files. */
int trace_stuck(int argc, char **argv);

#endif
