/* Which ranks have a core each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../backends/tcp/shm/shm_cores.c"

enum { SEATS = 5, END = -1 };

/* The masks of n seats, each a list of cores that ends with END. */
static bool suffice(int n, const int cores[][5], const bool *present)
{
    static const bool all[SEATS] = {true, true, true, true, true};
    struct shm_seat *seats = aligned_alloc(_Alignof(struct shm_seat), SEATS * sizeof *seats);
    struct shm shm = {.n = n, .base = (char *)seats};
    for (int seat = 0; seat < n; seat++) {
        CPU_ZERO(&seats[seat].cores);
        for (int i = 0; i < 5 && cores[seat][i] != END; i++) CPU_SET(cores[seat][i], &seats[seat].cores);
    }
    bool found = shm_have_cores(&shm, present != NULL ? present : all);
    free(seats);
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

/* As mpirun and srun bind. */
static void test_bound(void **state)
{
    (void)state;
    assert_true(suffice(2, (const int[][5]){{0, END}, {1, END}}, NULL));
    assert_true(suffice(2, (const int[][5]){{1023, END}, {1, END}}, NULL));
    assert_false(suffice(2, (const int[][5]){{1, END}, {1, END}}, NULL));
    assert_true(suffice(4, (const int[][5]){{0, 1, END}, {0, 1, END}, {2, 3, END}, {2, 3, END}}, NULL));
    assert_false(suffice(4, (const int[][5]){{0, 1, END}, {0, 1, END}, {0, 1, END}, {2, 3, END}}, NULL));
}

/* Whoever comes first may have to take another one. */
static void test_mixed(void **state)
{
    (void)state;
    assert_true(suffice(3, (const int[][5]){{0, 1, 2, END}, {0, 1, END}, {0, END}}, NULL));
    assert_true(suffice(4, (const int[][5]){{0, 1, END}, {1, 2, END}, {2, 3, END}, {0, END}}, NULL));
    assert_false(suffice(4, (const int[][5]){{0, 1, END}, {1, 2, END}, {2, END}, {0, END}}, NULL));
    assert_false(suffice(2, (const int[][5]){{0, 1, END}, {END}}, NULL)); /* nothing is known of it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unbound), cmocka_unit_test(test_bound),
                                       cmocka_unit_test(test_mixed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
