/* Alternatives of a case: groups of all ranks, each of which knows one algorithm or path of the operation alone. */
#ifndef BENCH_ALTERNATIVES_H
#define BENCH_ALTERNATIVES_H

#include "bench/options.h"

enum { ALTERNATIVES_MAX = 16, ALTERNATIVE_NAME_MAX = 64, DESCRIPTION_MAX = 128 };

struct alternatives {
    int n;
    const char *name[ALTERNATIVES_MAX];
    tutti_group *group[ALTERNATIVES_MAX];
};

/* Makes a group of all ranks.  algorithm: as in tutti_group_opts, or NULL for the automatic choice. */
tutti_group *alternatives_group(const struct bench_case *c, const char *algorithm);

/* Describes the world as tuning files do: "tcp 4 1 " for its backend, ranks and hosts. */
void alternatives_world(char text[DESCRIPTION_MAX]);

/* Writes the name of the algorithm or path by which the group runs the case.  Returns false if Tutti does not choose
 * it. */
bool alternatives_taken(const struct bench_case *c, tutti_group *group, char name[ALTERNATIVE_NAME_MAX]);

/* Makes a group for each algorithm and path that can do the case, by the override that programs have. */
void alternatives_open(const struct bench_case *c, struct alternatives *list);
void alternatives_close(struct alternatives *list);

/* Measures the case in a group.  Returns the slowest rank's time in us, alike on all ranks: the mean of the
 * iterations, since a rank that runs ahead waits in few of them.  Clears *right if a result was wrong. */
double alternatives_time(const struct options *options, struct bench_case *c, tutti_group *group, bool *right);

#endif
