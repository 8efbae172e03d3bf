/* Two ranks of a host: they share a cache or not, have cores alike or not, and are a world or a part of one. */
#include "procs.h"

#include <sched.h>

#include "unit/given_cores.h"

enum { LIMIT_MS = 20000 };

/* All operations that may go through trays or not, some at a time.  Nothing but zero: how many values are wrong. */
static int64_t round_of(tutti_group *group, int rank, int64_t n, int64_t seed)
{
    enum { BOTH = 2 };
    int64_t *in = malloc((size_t)n * BOTH * sizeof *in), *out = malloc((size_t)n * BOTH * sizeof *out), wrong = 0;
    tutti_tensor one = tutti_view(in, n), two = tutti_view(in, n * BOTH);
    for (int64_t i = 0; i < n * BOTH; i++) in[i] = seed + i + rank * 1000003;
    if (tutti_all_gather_into_tensor(tutti_view(out, n * BOTH), one, tutti_with(.group = group)) != TUTTI_OK) wrong++;
    for (int64_t i = 0; i < n * BOTH; i++) wrong += out[i] != seed + i % n + i / n * 1000003;
    if (tutti_all_to_all_single(tutti_view(out, n * BOTH), two, NULL, NULL, tutti_with(.group = group)) != TUTTI_OK)
        wrong++;
    for (int64_t i = 0; i < n * BOTH; i++) wrong += out[i] != seed + rank * n + i % n + i / n * 1000003;
    if (tutti_reduce_scatter_tensor(tutti_view(out, n), two, TUTTI_SUM, tutti_with(.group = group)) != TUTTI_OK)
        wrong++;
    for (int64_t i = 0; i < n; i++) wrong += out[i] != 2 * (seed + rank * n + i) + 1000003;
    if (tutti_all_reduce(two, TUTTI_SUM, tutti_with(.group = group)) != TUTTI_OK) wrong++;
    for (int64_t i = 0; i < n * BOTH; i++) wrong += in[i] != 2 * (seed + i) + 1000003;
    if (rank == 1)
        for (int64_t i = 0; i < n * BOTH; i++) in[i] = -1;
    if (tutti_broadcast(two, 0, tutti_with(.group = group)) != TUTTI_OK) wrong++;
    for (int64_t i = 0; i < n * BOTH; i++) wrong += in[i] != 2 * (seed + i) + 1000003;
    free(in);
    free(out);
    return wrong;
}

static int many_rounds(tutti_group *group, int rank)
{
    static const int64_t numel[] = {1, 2048, 2049, 4096, 8192, 30000, 100000, 8191};
    for (int i = 0; i < 80; i++) EXPECT(round_of(group, rank, numel[i % 8], i * 7) == 0);
    return 0;
}

/* One that is bound to a core, as by a launcher, and one that is not. */
static int rank_of_uneven(int rank, int size, void *argument)
{
    cpu_set_t one;
    (void)size;
    CPU_ZERO(&one);
    CPU_SET(nth_of(&given, 0), &one);
    if (rank == *(int *)argument) EXPECT(sched_setaffinity(0, sizeof one, &one) == 0);
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    EXPECT(many_rounds(NULL, rank) == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_cores_not_alike(void **state)
{
    (void)state;
    skip_on_one_core();
    for (int bound = 0; bound < 2; bound++) run_procs(2, rank_of_uneven, &bound);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores_not_alike),
    };
    return cmocka_run_group_tests(tests, remember, NULL);
}
