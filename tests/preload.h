/* Test programs that run with a library of tests/plugins loaded before them (LD_PRELOAD). */
#ifndef TESTS_PRELOAD_H
#define TESTS_PRELOAD_H

#include <stdbool.h>

/* Returns true if the program has the symbol.  Otherwise starts the program again with library NAME before it.  Returns
 * false, with the reason on stderr, if that fails.  Call it first in main. */
bool preload(char **argv, const char *name, const char *symbol);

/* Returns a function of the library. */
void *preload_find(const char *symbol);

#endif
