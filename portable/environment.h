/* What the environment and the C library name. */
#ifndef PORTABLE_ENVIRONMENT_H
#define PORTABLE_ENVIRONMENT_H

/* Is getenv, but NULL in a program that runs with another user's rights. */
char *environment_get(const char *name);
/* Returns the name of a signal without SIG, or NULL. */
const char *environment_signal(int signal);

#endif
