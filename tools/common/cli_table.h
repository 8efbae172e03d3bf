/* The options of a table and those that every tool has. */
#ifndef COMMON_CLI_TABLE_H
#define COMMON_CLI_TABLE_H

#include "common/cli.h"

enum { CLI_OPTIONS_MAX = 64 };

/* What a tool's own ids must not be. */
enum { CLI_HELP = 1000, CLI_VERSION, CLI_COMPLETION };

/* Returns option i, or NULL after the last one. */
const struct cli_option *cli_at(const struct cli *cli, int i);

/* True if the value may be left out. */
bool cli_value_is_optional(const struct cli_option *option);

/* cli_help.c.  Prints --help.  Returns the exit status. */
int cli_print_help(const struct cli *cli);

/* cli_complete.c.  Prints the script that completes the command line in a shell.  Returns the exit status. */
int cli_print_completion(const struct cli *cli, const char *shell);

#endif
