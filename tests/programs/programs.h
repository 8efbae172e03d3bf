/* Small programs that do what larger ones do between collectives.  Each is an iteration of a loop. */
#ifndef TESTS_PROGRAMS_H
#define TESTS_PROGRAMS_H

#include <stddef.h>
#include <stdint.h>

#ifdef PROGRAMS_MPI
#include "calls_mpi.h"
#else
#include "calls_tutti.h"
#endif

enum { SPACE = 32 << 20 };

struct program {
    const char *name;
    void (*run)(int bytes);
    int sizes[4]; /* up to the first 0 */
};

/* Each ends with a program without a name. */
extern const struct program training_programs[], solver_programs[], irregular_programs[];

extern int me, n;
extern char *in, *out; /* SPACE bytes each */
extern group row, column;
extern unsigned step; /* the iteration, the same on every rank */

/* A fixed number of multiplications, about a microsecond for each unit. */
void compute(int units);

static inline int next(int by)
{
    return (me + by) % n;
}

static inline int previous(int by)
{
    return (me + n - by % n) % n;
}

/* The r-th block of bytes. */
static inline char *block(char *data, int r, int bytes)
{
    return data + (size_t)r * (size_t)bytes;
}

static inline double *doubles(char *data)
{
    return (double *)(void *)data;
}

#endif
