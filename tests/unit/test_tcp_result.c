/* backends/tcp/shm/coll/result.c: results that other ranks read, with plain and with non-temporal stores. */
#include "unit/shm_ends.h"

#include "../../backends/tcp/shm/coll/result.c"

/* Both ways write the same bits, and nothing beyond the result. */
static void test_results(void **state)
{
    enum { N = 3 * BLOCK / 8 + 5, RANKS = 3 };
    static _Alignas(SHM_LINE) int64_t in[RANKS][N + 1], out[N + 1];
    const void *from[RANKS] = {in[0], in[1], in[2]};
    struct coll_segment coll = {.host = &ends_host, .n = RANKS};
    struct coll_op op = {.dtype = TUTTI_INT64, .element = sizeof(int64_t)};
    (void)state;
    for (int bypasses = 0; bypasses < 2; bypasses++) {
        for (int64_t i = 0; i <= N; i++) in[0][i] = i, in[1][i] = i * 1000, in[2][i] = bypasses, out[i] = -1;
        op.bypasses = bypasses;
        coll_result_reduce(&coll, &op, (char *)out, from, N * sizeof(int64_t));
        for (int64_t i = 0; i < N; i++) assert_int_equal(out[i], i * 1001 + bypasses);
        assert_int_equal(out[N], -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_results)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
