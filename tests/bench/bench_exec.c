/* The executor's own cost a step: plans run over a table whose messages take no time and carry no data.
 *
 *     build/tests/bench_exec
 *
 * "at once": send and recv answer DONE. "later": both are pending, and end through exec_complete, first in first out.
 * ns/step is the median of many runs, exec_start included.  The target is 20 ns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "coll/coll.h"
#include "plan/exec.h"

enum { RUNS = 4001, PENDING = 1 << 16 };

static tutti_request *pending[PENDING];
static unsigned head, tail;

static int at_once(void *group, tutti_request *request)
{
    (void)group;
    (void)request;
    return TUTTI_REQUEST_DONE;
}

static int later(void *group, tutti_request *request)
{
    (void)group;
    pending[tail++ % PENDING] = request;
    return TUTTI_REQUEST_PENDING;
}

static const tutti_backend tables[2] = {
    {TUTTI_BACKEND_HEADER, .send = at_once, .recv = at_once, .recv_reduce = at_once},
    {TUTTI_BACKEND_HEADER, .send = later, .recv = later, .recv_reduce = later},
};

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void run_once(struct exec *exec)
{
    if (exec_start(exec) != TUTTI_OK) abort();
    for (;;) {
        while (exec_advance(exec)) continue;
        if (exec_ended(exec)) return;
        while (head != tail) exec_complete(exec, pending[head++ % PENDING], TUTTI_OK);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct plan *build(tutti_kind kind, const char *name, int size, int64_t count, bool recv_reduce)
{
    struct coll_args args = {.kind = kind, .rank = 1, .size = size, .count = count, .even = true, .segment = INT64_MAX};
    for (const struct coll_algorithm *a = coll_algorithms; a->name != NULL; a++)
        if (a->kind == kind && strcmp(a->name, name) == 0)
            return coll_build(a, &args, recv_reduce ? PLAN_ALWAYS : PLAN_NEVER);
    return NULL;
}

static void measure(tutti_kind kind, const char *what, const char *name, int size, bool recv_reduce)
{
    static double times[RUNS];
    static float in_data[256], out_data[256];
    /* at most one element a part: all steps, but almost no data */
    struct plan *plan = build(kind, name, size, strcmp(name, "ring") == 0 ? size : 1, recv_reduce);
    struct exec *exec = plan != NULL ? exec_new(plan) : NULL;
    if (exec == NULL || plan->n_steps == 0) {
        fprintf(stderr, "no plan for %s\n", name);
        exit(1);
    }
    tutti_tensor in = {in_data, 256, TUTTI_FLOAT32, {TUTTI_CPU, 0}},
                 out = {out_data, 256, TUTTI_FLOAT32, {TUTTI_CPU, 0}};
    printf("%-11s %-19s %5d %7s %6u", what, name, size, recv_reduce ? "fused" : "apart", plan->n_steps);
    for (int table = 0; table < 2; table++) {
        exec->run = (struct exec_run){.backend = &tables[table],
                                      .in = &in,
                                      .out = &out,
                                      .n_in = 1,
                                      .n_out = 1,
                                      .dtype = TUTTI_FLOAT32,
                                      .op = TUTTI_SUM,
                                      .owner = &in};
        /* enough runs a reading to hide the cost of reading the clock */
        int repeat = 1 + (int)(2000 / plan->n_steps);
        for (int i = 0; i < RUNS; i++) {
            double begin = now_ns();
            for (int k = 0; k < repeat; k++) run_once(exec);
            times[i] = (now_ns() - begin) / repeat / plan->n_steps;
        }
        qsort(times, RUNS, sizeof *times, by_value);
        printf("  %8.1f", times[RUNS / 2]);
    }
    putchar('\n');
    exec_free(exec);
    plan_free(plan);
}

int main(void)
{
    static const int sizes[] = {2, 4, 8, 16, 64};
    printf("%-11s %-19s %5s %7s %6s  %8s  %8s   (ns a step)\n", "operation", "algorithm", "ranks", "reduce", "steps",
           "at once", "later");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        measure(TUTTI_ALL_REDUCE, "all_reduce", "recursive_doubling", sizes[i], true);
        measure(TUTTI_ALL_REDUCE, "all_reduce", "recursive_doubling", sizes[i], false);
        measure(TUTTI_ALL_REDUCE, "all_reduce", "ring", sizes[i], true);
        measure(TUTTI_ALL_REDUCE, "all_reduce", "ring", sizes[i], false);
        measure(TUTTI_BROADCAST, "broadcast", "binomial", sizes[i], true);
        measure(TUTTI_BARRIER, "barrier", "dissemination", sizes[i], true);
    }
    return 0;
}
