/* Cases of groups that run twice: with ranks as threads over the tests' own backend, and with processes over tcp, where
 * each rank has its own descriptors. */
#ifndef TESTS_GROUP_CASES_H
#define TESTS_GROUP_CASES_H

#include "ranks.h"

struct group_case {
    const char *name;
    rank_fn fn;
    int least, most; /* ranks */
};

/* Runs the cases, and other tests of the program.  Returns the number that failed. */
int group_cases_run(const struct group_case *cases, int n, const struct CMUnitTest *others, int n_others);

/* Returns a number below 1 << 24, or shuffles 0 to n - 1. */
unsigned group_cases_random(unsigned *state);
void group_cases_shuffle(int *order, int n, unsigned seed);

/* Collects the ranks whose bits are set in mask, in an order that depends on turn.  Returns their number. */
int group_cases_pick(int *ranks, int size, unsigned mask, int turn);

/* True if the group's sum of its members' global ranks plus one is right. */
bool group_cases_sums_up(tutti_group *group, const int *ranks, int n);

#endif
