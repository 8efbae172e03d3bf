/* The cores that a test may use, for tests that move between them. */
#ifndef GIVEN_CORES_H
#define GIVEN_CORES_H

#include <sched.h>

extern cpu_set_t given_cores;

/* Sets given_cores to this process's mask.  A CMocka setup. */
int given_cores_save(void **state);

/* Returns the n-th core of a mask, from 0, or -1. */
int given_cores_nth(const cpu_set_t *mask, int n);

/* Skips the test unless there are two cores. */
void given_cores_need_two(void);

#endif
