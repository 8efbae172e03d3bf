/* Many ranks on few cores connect to each other at once.  A peer with a slow handshake is not lost. */
#include "procs.h"

enum { RANKS = 96, LIMIT_S = 180, TIMEOUT_MS = 150000 };

static int rank_of_crowd(int rank, int size, void *argument)
{
    int32_t out[RANKS], in[RANKS];
    (void)argument;
    setenv("TUTTI_SHM", "0", 1);
    EXPECT(tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = TIMEOUT_MS, .store_timeout_ms = 60000}) ==
           TUTTI_OK);
    for (int i = 0; i < size; i++) out[i] = rank * size + i;
    EXPECT(tutti_all_to_all_single(tutti_view(in, size), tutti_view(out, size), NULL, NULL, NULL) == TUTTI_OK);
    for (int i = 0; i < size; i++) EXPECT(in[i] == i * size + rank);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    return tutti_destroy_process_group(NULL);
}

static void test_all_to_all_of_many_ranks(void **state)
{
    (void)state;
    struct procs procs = {.size = RANKS, .fn = rank_of_crowd, .limit_s = LIMIT_S};
    procs_run(&procs);
    for (int i = 0; i < RANKS; i++) assert_int_equal(procs.code[i], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_to_all_of_many_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
