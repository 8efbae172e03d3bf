/* Runs small collectives for a second, blocking or asynchronous ones ("async").  Prints the longest time, in ms, in
 * which two ranks sat on one core, and the median and the mean time of a round of two calls, in us. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static tutti_work *work, **async_op; /* async_op: NULL or &work */

static void wait_for_it(void)
{
    if (async_op != NULL) TUTTI_CHECK(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT));
}

/* True if any two ranks are on the same core, as they were a moment ago. */
static int share_a_core(int world)
{
    int cores[world], own = sched_getcpu(), shared = 0;
    TUTTI_CHECK(
        tutti_all_gather_into_tensor(tutti_view(cores, world), tutti_view(&own, 1), tutti_with(.async_op = async_op)));
    wait_for_it();
    for (int i = 0; i < world; i++)
        for (int k = 0; k < i; k++) shared |= cores[i] == cores[k];
    return shared;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    enum { RUN_MS = 1000, ROUNDS = 4000000 };
    static double round_us[ROUNDS];
    int rounds = 0;
    if (argc > 1 && strcmp(argv[1], "async") == 0) async_op = &work;
    TUTTI_CHECK(tutti_init_process_group("tcp", NULL));
    int world = tutti_get_world_size(NULL), over = 0;
    double begin = now_ms(), since = -1, longest = 0;
    while (!over) {
        double now = now_ms();
        if (!share_a_core(world))
            since = -1;
        else if (since < 0)
            since = now;
        if (since >= 0 && now_ms() - since > longest) longest = now_ms() - since;
        over = now - begin > RUN_MS;
        TUTTI_CHECK(tutti_broadcast(tutti_view(&over, 1), 0, tutti_with(.async_op = async_op)));
        wait_for_it();
        if (rounds < ROUNDS) round_us[rounds++] = (now_ms() - now) * 1e3;
    }
    double mean_us = (now_ms() - begin) * 1e3 / rounds;
    qsort(round_us, (size_t)rounds, sizeof round_us[0], compare);
    if (tutti_get_rank(NULL) == 0) printf("%.1f %.2f %.2f\n", longest, round_us[rounds / 2], mean_us);
    return tutti_destroy_process_group(NULL);
}
