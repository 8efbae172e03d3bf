/* Binds ranks to cores (--bind). */
#ifndef RUN_BIND_H
#define RUN_BIND_H

#include <sched.h>
#include <stdbool.h>

enum bind { BIND_UNSET, BIND_NONE, BIND_CORE, BIND_SOCKET };

/* Returns the value of --bind with this name, or BIND_UNSET.  bind_name does the reverse. */
enum bind bind_of(const char *name);
const char *bind_name(enum bind bind);

/* Finds the processors of each of n ranks, among those that this process may use.  Returns false after a message. */
bool bind_find(enum bind bind, int n, cpu_set_t *processors);

#endif
