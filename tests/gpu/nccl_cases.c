/* The cases of nccl_cases.h and stage_cases.h on this process's rank, under tutti-run; on a GPU, or with TUTTI_FAKES on
 * the stand-ins.
 *
 *     nccl_cases [CASE [BACKEND]]      all of nccl_cases.h, on "nccl", where none is named
 */
#include "stage_cases.h"

static int run(const char *name, case_fn fn, int rank, int size)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    int line = fn(NULL, rank, size);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double s = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    if (rank == 0 || line != 0)
        printf("case %-14s rank %d of %d: %s (%.2f s)\n", name, rank, size, line == 0 ? "ok" : "FAILED", s);
    return line;
}

/* The ranks are out of step after one that failed: it is the last. */
static int run_named(const char *name, int rank, int size)
{
    int found = 0, line = 0;
    for (int i = 0; i < NCCL_CASES && line == 0; i++) {
        if (name != NULL && strcmp(name, nccl_cases[i].name) != 0) continue;
        found++;
        line = run(nccl_cases[i].name, nccl_cases[i].fn, rank, size);
    }
    for (int i = 0; i < STAGE_CASES && line == 0 && name != NULL; i++) {
        if (strcmp(name, stage_cases[i].name) != 0) continue;
        found++;
        line = run(name, stage_cases[i].fn, rank, size);
    }
    if (found == 0) fprintf(stderr, "there is no case \"%s\"\n", name);
    return line != 0 || found == 0;
}

int main(int argc, char **argv)
{
    if (!cu_load()) return 77;
    TUTTI_CHECK(tutti_init_process_group(argc > 2 ? argv[2] : "nccl", NULL));
    int rank = tutti_get_rank(NULL), size = tutti_get_world_size(NULL), device = tutti_get_device(NULL).index;
    if (!cu_use(device)) return 1;
    int failed = run_named(argc > 1 ? argv[1] : NULL, rank, size), devices = 0;
    cu.count(&devices);
    for (int i = 0; i < devices; i++) {
        unsigned flags = 0;
        int active = 0;
        cu.state(i, &flags, &active);
        if (i == device || !active) continue;
        printf("rank %d: a context on cuda:%d, which nobody named: FAILED\n", rank, i);
        failed++;
    }
    TUTTI_CHECK(tutti_destroy_process_group(NULL));
    return failed > 0;
}
