/* The command that starts a node's tutti-run on its host. */
#ifndef RUN_SSH_COMMAND_H
#define RUN_SSH_COMMAND_H

#include "options.h"

/* Returns the words, ended by NULL.  No secret is among them, because other users can read a command line. */
char **ssh_command(const struct options *options, const struct host *host);
void ssh_free_command(char **command);

#endif
