#include "loop.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "monotonic.h"

/* True if the script wants no more rounds. */
static bool is_stopped(void)
{
    const char *file = getenv("LOOP_STOP");
    return file != NULL && access(file, F_OK) == 0;
}

static int report_failure(int status, double since)
{
    printf("%.3f %s: %s\n", monotonic_s() - since, tutti_status_string(status), tutti_last_error());
    return 3;
}

/* Sets element 0 to whether rank 0 continues, and computes the others from rank and round. */
static void fill(float *x, size_t n, int rank, int round, bool more)
{
    for (size_t i = 1; i < n; i++) x[i] = (float)(rank + round % 100 + (int)(i % 100));
    x[0] = rank == 0 && more ? 1 : 0;
}

static bool is_right(const float *x, size_t n, int world, int round)
{
    for (size_t i = 1; i < n; i++)
        if (x[i] != (float)(world * (world - 1) / 2 + world * (round % 100 + (int)(i % 100)))) return false;
    return true;
}

static int run_rounds(float *x, size_t n, double seconds, int pause_s)
{
    int rank = tutti_get_rank(NULL), world = tutti_get_world_size(NULL), round = 0;
    double begun = monotonic_s(), last = begun;
    bool more = true;
    while (more) {
        if (pause_s > 0) sleep((unsigned)pause_s);
        fill(x, n, rank, round, monotonic_s() < begun + seconds && !is_stopped());
        int status = tutti_all_reduce(tutti_view(x, (int64_t)n), TUTTI_SUM, NULL);
        if (status != TUTTI_OK) return report_failure(status, last);
        if (!is_right(x, n, world, round)) {
            printf("WRONG in round %d\n", round);
            return 4;
        }
        more = x[0] > 0;
        last = monotonic_s();
        if (round++ == 0) printf("running\n");
    }
    printf("right after %d rounds\n", round);
    return 0;
}

int loop_main(char **argument)
{
    size_t n = (size_t)atol(argument[2]) / sizeof(float);
    float *x = malloc(n * sizeof *x);
    tutti_init_opts opts = {.timeout_ms = atol(argument[1]),
                            .store_timeout_ms = argument[3] != NULL ? atol(argument[3]) : 20000};
    if (getenv("LOOP_REPORTS") != NULL) signal(SIGTERM, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 0);
    if (x == NULL || n < 2) abort();
    int pause_s = argument[3] != NULL && argument[4] != NULL ? atoi(argument[4]) : 0;
    double begun = monotonic_s();
    int status = tutti_init_process_group("tcp", &opts);
    if (status == TUTTI_OK) printf("joined\n");
    int result = status != TUTTI_OK ? report_failure(status, begun) : run_rounds(x, n, atof(argument[0]), pause_s);
    if (status == TUTTI_OK) {
        begun = monotonic_s();
        status = tutti_destroy_process_group(NULL);
        printf("destroyed in %.3f\n", monotonic_s() - begun);
        if (result == 0 && status != TUTTI_OK) result = report_failure(status, begun);
    }
    free(x);
    if (result != 0) sleep(1); /* otherwise the launcher would end the other ranks before they have reported */
    return result;
}
