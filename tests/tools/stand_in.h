/* A stand-in for ssh, which runs a host's command here.  Some names of hosts behave in their own way: see stand_in.c.
 */
#ifndef TESTS_STAND_IN_H
#define TESTS_STAND_IN_H

#include <sys/stat.h>

#include "launch.h"

/* Make and remove the stand-in, to which TUTTI_SSH points meanwhile, in a folder of its own. */
int stand_in_set_up(void **state);
int stand_in_tear_down(void **state);

/* Return the folder, and the command. */
const char *stand_in_folder(void);
const char *stand_in_command(void);

/* Files in the folder. */
void stand_in_path(const char *name, char *path, size_t bytes);
void stand_in_write(const char *name, const char *text, mode_t mode);
void stand_in_read(const char *name, struct text *text);

/* Returns the process that the stand-in for a host's ssh has become. */
pid_t stand_in_pid(const char *host);

/* Ranks of all hosts meet here. */
#define HOSTS "--master-addr", "127.0.0.1", "--hosts"

#endif
