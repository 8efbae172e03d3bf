/* Runs cases on this process's rank, under tutti-run: on a GPU, or on the stand-ins if TUTTI_FAKES is set.
 *
 *     nccl_cases [CASE [BACKEND]]      by default all cases of nccl_cases.c, on "nccl"
 */
#include <stdlib.h>
#include <string.h>

#include "gpu/cases.h"
#include "monotonic.h"

static int run(const struct device_case *one, int rank, int size)
{
    double begin = monotonic_s();
    int line = one->fn(NULL, rank, size);
    if (rank == 0 || line != 0)
        printf("case %-14s rank %d of %d: %s (%.2f s)\n", one->name, rank, size, line == 0 ? "ok" : "FAILED",
               monotonic_s() - begin);
    return line;
}

/* Runs the cases with this name, or all.  Returns their number, or -1.  Stops after a failure, because the ranks are
 * out of step then. */
static int run_named(const struct device_case *cases, const char *name, int rank, int size)
{
    int found = 0;
    for (int i = 0; cases[i].name != NULL; i++) {
        if (name != NULL && strcmp(name, cases[i].name) != 0) continue;
        found++;
        if (run(&cases[i], rank, size) != 0) return -1;
    }
    return found;
}

static int run_cases(const char *name, int rank, int size)
{
    int found = run_named(nccl_cases, name, rank, size);
    if (found == 0) found = run_named(stage_cases, name, rank, size);
    if (found == 0) found = run_named(fault_cases, name, rank, size);
    if (found == 0) fprintf(stderr, "there is no case \"%s\"\n", name);
    return found <= 0;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* a case may end the process */
    if (!cu_load()) return 77;
    TUTTI_CHECK(tutti_init_process_group(argc > 2 ? argv[2] : "nccl", NULL));
    int rank = tutti_get_rank(NULL), size = tutti_get_world_size(NULL), device = tutti_get_device(NULL).index;
    if (!cu_use(device)) return 1;
    int failed = run_cases(argc > 1 ? argv[1] : NULL, rank, size), devices = 0;
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
