#include "bench/measure.h"
#include "bench/memory.h"

#include <string.h>
#include <time.h>

enum { ITERATIONS_MAX = 5000, COMBINE_MAX = 4 };

/* Above this time per iteration, fewer iterations are measured. */
static const double slow_ns = 3e7;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Waits on the host until all ranks have entered, on CUDA too. */
static void synchronise(void)
{
    tutti_work *work = NULL;
    bool cpu = tutti_get_device(NULL).type == TUTTI_CPU;
    TUTTI_CHECK(tutti_barrier(tutti_with(.async_op = cpu ? NULL : &work)));
    if (work) TUTTI_CHECK(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT));
}

/* Replaces n values by their maximum or sum over all ranks. */
static void combine(double *value, int n, tutti_reduce_op op)
{
    tutti_work *work = NULL;
    tutti_tensor all = memory_new(n, TUTTI_FLOAT64, false);
    memory_write(all, value);
    TUTTI_CHECK(tutti_all_reduce(all, op, tutti_with(.async_op = all.device.type == TUTTI_CPU ? NULL : &work)));
    if (work) TUTTI_CHECK(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT));
    memory_read(value, all);
    memory_free(all, false);
}

static double largest(double value)
{
    combine(&value, 1, TUTTI_MAX);
    return value;
}

static void run(const struct bench_case *c, int64_t iterations)
{
    for (int64_t i = 0; i < iterations; i++) TUTTI_CHECK(bench_run(c));
}

/* Returns the time of an iteration on the slowest rank, estimated from a few iterations. */
static double estimate_ns(const struct bench_case *c, int64_t iterations)
{
    synchronise();
    int64_t start = now_ns();
    run(c, iterations);
    double each = (double)(now_ns() - start) / (double)iterations;
    synchronise();
    return largest(each) + 1;
}

static int64_t bounded(double iterations, int64_t least, int64_t most)
{
    if (iterations < (double)least) return least;
    return iterations > (double)most ? most : (int64_t)iterations;
}

/* Returns the number of iterations that fill the time. */
static int warm_up(const struct bench_case *c, double ns)
{
    double each = estimate_ns(c, 2);
    each = estimate_ns(c, bounded(ns / 4 / each, each > slow_ns ? 1 : 2, ITERATIONS_MAX / 4));
    return (int)bounded(ns / each, each > slow_ns ? 5 : 7, ITERATIONS_MAX);
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Computes the statistics of n iterations.  `stamp` has n + 1 time stamps and is overwritten. */
static void statistics(const struct bench_case *c, int64_t *stamp, int n, struct result *result)
{
    double value[COMBINE_MAX] = {0};
    value[1] = (double)(stamp[n] - stamp[0]) / n;
    for (int i = 0; i < n; i++) stamp[i] = stamp[i + 1] - stamp[i];
    qsort(stamp, (size_t)n, sizeof *stamp, compare);
    value[0] = ((double)stamp[(n - 1) / 2] + (double)stamp[n / 2]) / 2;
    value[2] = (double)stamp[0];
    value[3] = (double)stamp[(int)((n - 1) * 0.95)];
    combine(value, COMBINE_MAX, TUTTI_MAX);
    for (int i = 0; i < COMBINE_MAX; i++) value[i] /= 1000 * c->op->trips;
    result->us = value[0];
    result->mean = value[1];
    result->min = value[2];
    result->p95 = value[3];
    result->iterations = n;
}

static void timed_loop(const struct bench_case *c, int iterations, struct result *result)
{
    static int64_t stamp[ITERATIONS_MAX + 1];
    memset(stamp, 0, sizeof stamp); /* touch the pages before the clock starts */
    synchronise();
    run(c, 2);
    stamp[0] = now_ns();
    for (int i = 0; i < iterations; i++) {
        run(c, 1);
        stamp[i + 1] = now_ns();
    }
    synchronise();
    statistics(c, stamp, iterations, result);
}

int measure(const struct bench_case *c, double milliseconds, struct result *result)
{
    memory_spoil(c->out);
    synchronise();
    int status = bench_run(c);
    if (status != TUTTI_ERR_UNSUPPORTED) TUTTI_CHECK(status);
    if (largest(status < 0) > 0) return TUTTI_ERR_UNSUPPORTED;
    synchronise();
    double wrong = (double)c->op->wrong(c);

    int iterations = warm_up(c, 1e6 * milliseconds);
    memory_spoil(c->out);
    timed_loop(c, iterations, result);
    wrong += (double)c->op->wrong(c);
    combine(&wrong, 1, TUTTI_SUM);
    result->wrong = (int64_t)wrong;
    return TUTTI_OK;
}
