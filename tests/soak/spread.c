/* Runs small all_reduces for a second and prints the longest time, in ms, in which two ranks sat on one core. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <tutti/tutti.h>

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* True if any two ranks are on the same core, as they were a moment ago. */
static int share_a_core(int world)
{
    int cores[world], own = sched_getcpu(), shared = 0;
    TUTTI_CHECK(tutti_all_gather_into_tensor(tutti_view(cores, world), tutti_view(&own, 1), NULL));
    for (int i = 0; i < world; i++)
        for (int k = 0; k < i; k++) shared |= cores[i] == cores[k];
    return shared;
}

int main(void)
{
    enum { RUN_MS = 1000 };
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
        TUTTI_CHECK(tutti_broadcast(tutti_view(&over, 1), 0, NULL));
    }
    if (tutti_get_rank(NULL) == 0) printf("%.1f\n", longest);
    return tutti_destroy_process_group(NULL);
}
