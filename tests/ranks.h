/* Ranks that are threads of the test.  Each has its own group over one store in memory.  A rank's function returns 0,
 * or the line of the failed check (EXPECT).  Only the parent asserts. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "expect.h"

#define RANKS_MOST 16

/* Returns a counter of the plug-in "loop" by the name of its variable, or NULL. */
atomic_long *ranks_loop_counter(const char *name);

typedef int (*rank_fn)(tutti_group *group, int rank, int size, void *argument);

/* Bounds hangs alone, because a sanitizer on a busy machine is slow. */
enum { RANKS_HANG_MS = 120000 };

/* Run fn on size ranks, and fail the test unless all return 0.  The backend is TUTTI_TEST_BACKEND, or "loop". */
void ranks_run(int size, rank_fn fn, void *argument);
void ranks_run_with(int size, rank_fn fn, void *argument, tutti_group_opts opts);

/* Makes tutti find the tests' plug-ins.  Test programs call it first in main. */
void ranks_setup(void);

#endif
