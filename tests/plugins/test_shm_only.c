/* Another backend can use the collectives in shared memory: the plug-in shm_only links backends/tcp/shm alone. */
#include <unistd.h>

#include "ranks.h"

enum { RANKS = 3, SMALL = 5, LARGE = 300000 };

static int64_t count_wrong(tutti_group *group, int rank, int size, int64_t n)
{
    int64_t *mine = malloc((size_t)n * sizeof *mine), *all = malloc((size_t)(n * size) * sizeof *all), wrong = 0;
    for (int64_t i = 0; i < n; i++) mine[i] = i + rank;
    if (tutti_all_gather_into_tensor(tutti_view(all, n * size), tutti_view(mine, n), tutti_with(.group = group)) !=
        TUTTI_OK)
        wrong++;
    for (int64_t i = 0; i < n * size; i++) wrong += all[i] != i % n + i / n;
    if (tutti_all_reduce(tutti_view(mine, n), TUTTI_SUM, tutti_with(.group = group)) != TUTTI_OK) wrong++;
    for (int64_t i = 0; i < n; i++) wrong += mine[i] != size * i + size * (size - 1) / 2;
    free(mine);
    free(all);
    return wrong;
}

static int run_rank(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    EXPECT(count_wrong(group, rank, size, SMALL) == 0);
    EXPECT(count_wrong(group, rank, size, LARGE) == 0);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

static void test_collectives(void **state)
{
    (void)state;
    if (access(TUTTI_BUILD_DIR "/tests/plugins/libtutti_shm_only.so", R_OK) != 0) skip();
    setenv("TUTTI_TEST_BACKEND", "shm_only", 1);
    ranks_run(RANKS, run_rank, NULL);
}

/* The plug-in contains neither the message protocol nor libfabric. */
static void test_symbols(void **state)
{
    char line[512];
    int found = 0;
    (void)state;
    FILE *output = popen("nm '" TUTTI_BUILD_DIR "/tests/plugins/libtutti_shm_only.so'", "r");
    assert_non_null(output);
    while (fgets(line, sizeof line, output) != NULL) {
        char name[256];
        if (sscanf(line, "%*x %*c %255s", name) != 1 && sscanf(line, " %*c %255s", name) != 1) continue;
        found += strncmp(name, "coll_", 5) == 0;
        if (strncmp(name, "proto_", 6) == 0 || strncmp(name, "fabric_", 7) == 0 || strncmp(name, "wire_", 5) == 0)
            fail_msg("the plug-in has %s", name);
    }
    pclose(output);
    assert_true(found > 0);
}

static int setup(void **state)
{
    (void)state;
    ranks_setup();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_collectives), cmocka_unit_test(test_symbols)};
    return cmocka_run_group_tests(tests, setup, NULL);
}
