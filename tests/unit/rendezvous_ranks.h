/* Ranks of a rendezvous: each is a forked process with an environment of its own.  It leaves its result in shared
 * memory, and only the parent asserts. */
#ifndef TESTS_RENDEZVOUS_RANKS_H
#define TESTS_RENDEZVOUS_RANKS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/rendezvous.h"

struct result {
    int status, rank, world_size, local_rank, local_world_size, node_rank;
    bool exchanged;
    int64_t ms;
    char text[ERROR_TEXT_MAX];
};

enum { RESULTS_MAX = 8 };

extern struct result *rendezvous_results; /* shared with the children */

/* Clears the variables of all launchers.  A CMocka setup. */
int rendezvous_ranks_setup(void **state);

/* Sets variables, as in "A=1 B=2".  "A=" sets an empty value. */
void rendezvous_ranks_setenv(const char *text);

/* Joins, exchanges a key with another rank through the store, and leaves. */
void rendezvous_ranks_main(const struct rendezvous_args *args, struct result *result);

/* Forks a rank, which writes rendezvous_results[i].  Waits for one. */
pid_t rendezvous_ranks_start(int i, const char *environment, const struct rendezvous_args *args);
void rendezvous_ranks_wait(pid_t child);

/* Runs n ranks with these environments. args NULL stands for env:// with a timeout of 20 s. */
void rendezvous_ranks_run(int n, char environments[][256], const struct rendezvous_args *args);

/* Checks that result i has this status and an error that contains the text. */
void rendezvous_ranks_expect(int i, int status, const char *text);

/* Checks that result i is of a rank that joined the others. */
void rendezvous_ranks_expect_joined(int i, int rank, int world_size);

#endif
