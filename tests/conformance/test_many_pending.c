/* Thousands of operations under way that wait for each other's memory act as if run one after another.  The time for
 * each does not grow with their number: if the end of one looked at all others, these would take many times the limit.
 */
#include "procs.h"
#include "sanitizer.h"

enum { LIMIT_MS = 30000, OPS = SANITIZED ? 2000 : 20000, CELLS = 8 };

/* Each cell becomes the sum of the one before over all ranks, modulo 2^64.  All ranks have the same values. */
static int rank_of_chain(int rank, int size, void *shm)
{
    static tutti_work *works[OPS];
    int64_t cell[CELLS], expected[CELLS];
    (void)rank;
    setenv("TUTTI_SHM", shm, 1);
    for (int i = 0; i < CELLS; i++) cell[i] = expected[i] = i + 1;
    EXPECT(proc_init(LIMIT_MS) == TUTTI_OK);
    for (int i = 0; i < OPS; i++) {
        tutti_tensor from = tutti_view(&cell[i % CELLS], 1), to = tutti_view(&cell[(i + 1) % CELLS], 1);
        if (i % 3 == 0) {
            EXPECT(tutti_broadcast(from, i % size, tutti_with(.async_op = &works[i])) == TUTTI_OK);
        } else {
            EXPECT(tutti_all_reduce_into(to, from, TUTTI_SUM, tutti_with(.async_op = &works[i])) == TUTTI_OK);
            expected[(i + 1) % CELLS] = (int64_t)((uint64_t)expected[i % CELLS] * (uint64_t)size);
        }
    }
    EXPECT(tutti_wait_all(works, OPS, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(memcmp(cell, expected, sizeof cell) == 0);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_shared_memory(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_chain, "1");
}

static void test_network(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_chain, "0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
