/* Times the small programs over Tutti, or over MPI where PROGRAMS_MPI is defined (compare.sh).  Prints a line for each
 * program and size:
 *
 *     NAME RANKS BYTES MEDIAN MEAN      us an iteration, the largest of the ranks' medians and of their means
 *
 *     programs [--ms N] [--only NAME]   N: how long each case runs, 15 by default
 */
#include "programs.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST_ITERATIONS = 20000 };

int me, n;
char *in, *out;
group row, column;
unsigned step;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void compute(int units)
{
    static volatile double kept = 1.0000001;
    double x = kept;
    for (int i = 0; i < units * 1000; i++) x = x * 1.0000001 + 1e-9;
    kept = x > 2 ? 1.0000001 : x;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void run(const struct program *program, int bytes, double ms)
{
    static uint64_t times[MOST_ITERATIONS + 1];
    memset(in, 0, SPACE);
    memset(out, 0, SPACE);
    barrier();
    for (step = 0; step < 3; step++) program->run(bytes);
    uint64_t begin = now_ns();
    for (; step < 8; step++) program->run(bytes);
    double estimate = max_of((double)(now_ns() - begin) / 5);
    int iterations = (int)(ms * 1e6 / (estimate + 1));
    iterations = iterations < 9 ? 9 : iterations > MOST_ITERATIONS ? MOST_ITERATIONS : iterations;
    barrier();
    times[0] = now_ns();
    for (int i = 0; i < iterations; i++, step++) {
        program->run(bytes);
        times[i + 1] = now_ns();
    }
    double mean = max_of((double)(times[iterations] - times[0]) / iterations) / 1000;
    for (int i = 0; i < iterations; i++) times[i] = times[i + 1] - times[i];
    qsort(times, (size_t)iterations, sizeof *times, by_value);
    double median = max_of((double)times[iterations / 2]) / 1000;
    if (me != 0) return;
    printf("%s %d %d %.3f %.3f\n", program->name, n, bytes, median, mean);
    fflush(stdout);
}

static void run_all(const struct program *programs, const char *only, double ms)
{
    for (; programs->name != NULL; programs++) {
        if (strstr(programs->name, only) == NULL) continue;
        for (const int *bytes = programs->sizes; *bytes != 0; bytes++) run(programs, *bytes, ms);
    }
}

int main(int argc, char **argv)
{
    const char *only = "";
    double ms = 15;
    start(&argc, &argv);
    me = my_rank();
    n = n_ranks();
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--ms") == 0) ms = strtod(argv[i + 1], NULL);
        if (strcmp(argv[i], "--only") == 0) only = argv[i + 1];
    }
    in = malloc(SPACE);
    out = malloc(SPACE);
    if (in == NULL || out == NULL || n < 2 || n > MAX_RANKS) return 2;
    int width = n % 4 == 0 ? n / 2 : n;
    row = split(me / width, me);
    column = split(me % width, me);
    run_all(training_programs, only, ms);
    run_all(solver_programs, only, ms);
    run_all(irregular_programs, only, ms);
    free_group(row);
    free_group(column);
    free(in);
    free(out);
    finish();
    return 0;
}
