/* Which ranks have a core each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../backends/tcp/shm/cores.c"

enum { SEATS = 5, END = -1 };

/* True if the masks give each of n local ranks a core.  A mask is a list of cores that ends with END. */
static bool suffice(int n, const int cores[][5], const bool *present)
{
    static const bool all[SEATS] = {true, true, true, true, true};
    struct shm_rank *local_ranks = aligned_alloc(_Alignof(struct shm_rank), SEATS * sizeof *local_ranks);
    struct shm shm = {.n = n, .base = (char *)local_ranks};
    for (int local_rank = 0; local_rank < n; local_rank++) {
        CPU_ZERO(&local_ranks[local_rank].cores);
        for (int i = 0; i < 5 && cores[local_rank][i] != END; i++)
            CPU_SET(cores[local_rank][i], &local_ranks[local_rank].cores);
    }
    bool found = shm_have_cores(&shm, present != NULL ? present : all);
    free(local_ranks);
    return found;
}

static void test_unbound(void **state)
{
    (void)state;
    const int same[][5] = {{0, 1, END}, {0, 1, END}, {0, 1, END}};
    assert_true(suffice(2, same, NULL));
    assert_false(suffice(3, same, NULL));
    assert_true(suffice(3, same, (const bool[]){true, false, true}));
}

/* Masks as mpirun and srun set them. */
static void test_bound(void **state)
{
    (void)state;
    assert_true(suffice(2, (const int[][5]){{0, END}, {1, END}}, NULL));
    assert_true(suffice(2, (const int[][5]){{1023, END}, {1, END}}, NULL));
    assert_false(suffice(2, (const int[][5]){{1, END}, {1, END}}, NULL));
    assert_true(suffice(4, (const int[][5]){{0, 1, END}, {0, 1, END}, {2, 3, END}, {2, 3, END}}, NULL));
    assert_false(suffice(4, (const int[][5]){{0, 1, END}, {0, 1, END}, {0, 1, END}, {2, 3, END}}, NULL));
}

/* A rank may have to leave its first core to another one. */
static void test_mixed(void **state)
{
    (void)state;
    assert_true(suffice(3, (const int[][5]){{0, 1, 2, END}, {0, 1, END}, {0, END}}, NULL));
    assert_true(suffice(4, (const int[][5]){{0, 1, END}, {1, 2, END}, {2, 3, END}, {0, END}}, NULL));
    assert_false(suffice(4, (const int[][5]){{0, 1, END}, {1, 2, END}, {2, END}, {0, END}}, NULL));
    assert_false(suffice(2, (const int[][5]){{0, 1, END}, {END}}, NULL)); /* a rank without a known mask */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unbound), cmocka_unit_test(test_bound),
                                       cmocka_unit_test(test_mixed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
