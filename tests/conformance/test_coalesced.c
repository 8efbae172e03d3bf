/* Coalesced operations on ranks that are threads, over TUTTI_TEST_BACKEND or the tests' own loop. */
#include <sys/mman.h>
#include <unistd.h>

#include "conformance/values.h"
#include "ranks.h"

static int coalesced(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    enum { N = 30 };
    int32_t x[N][3], y[3], from_left;
    tutti_work *work = NULL, *none = (tutti_work *)&work;
    atomic_long *counter = ranks_loop_counter("loop_messages");
    EXPECT(counter != NULL);
    const bool counted = size > 1 && getenv("TUTTI_TEST_BACKEND") == NULL; /* the loop plug-in counts batches */
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++) values_fill(x[i], rank, i, i % 3 + 1);
        EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
        long before = atomic_load(counter);
        EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
        if (round == 1) EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
        for (int i = 0; i < N;
             i++) /* separately: 30 times the messages of one operation; coalesced: the messages of one */
            EXPECT(tutti_all_reduce(tutti_view(x[i], i % 3 + 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
        if (round == 1) EXPECT(x[N - 1][0] == values_of_rank(rank, N - 1)); /* nothing has started */
        if (round == 1) EXPECT(tutti_coalesce_end(group, NULL) == TUTTI_OK);
        for (int i = 0; i < N; i++) EXPECT(values_hold_sum(x[i], size, i, i % 3 + 1));
        EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
        long sent = atomic_load(counter) - before;
        if (counted) EXPECT(round == 0 ? sent > 20 * size : sent < 20 * size);
    }
    EXPECT(tutti_coalesce_end(group, NULL) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
    EXPECT(tutti_coalesce_begin(group) == TUTTI_ERR_INVALID_ARGUMENT);
    const tutti_opts *opts = tutti_with(.group = group);
    tutti_bytes bytes = {x, 1}, list[RANKS_MOST] = {{0}}; /* two operations each, one after the other */
    EXPECT(tutti_broadcast_bytes(&bytes, 0, opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_all_gather_bytes(list, size, x, 1, opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_gather_bytes(list, size, x, 1, rank, opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_scatter_bytes(&bytes, list, size, rank, opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "coalesce_begin") != NULL);
    values_fill(x[0], rank, 0, 3);
    values_fill(y, rank, 0, 3);
    EXPECT(tutti_all_reduce(tutti_view(x[0], 3), TUTTI_SUM, tutti_with(.group = group, .async_op = &none)) == TUTTI_OK);
    EXPECT(none == NULL);
    EXPECT(tutti_all_reduce(tutti_view(x[0], 3), TUTTI_MAX, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_broadcast(tutti_view(y, 3), size - 1, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_broadcast(tutti_view(y, 3), size, tutti_with(.group = group)) == TUTTI_ERR_INVALID_ARGUMENT);
    if (size > 1) {
        EXPECT(tutti_send(tutti_view(&rank, 1), (rank + 1) % size, tutti_with(.group = group)) == TUTTI_OK);
        EXPECT(tutti_recv(tutti_view(&from_left, 1), (rank + size - 1) % size, tutti_with(.group = group)) == TUTTI_OK);
    }
    EXPECT(tutti_coalesce_end(group, &work) == TUTTI_OK);
    EXPECT(tutti_work_op(work) == TUTTI_COALESCED);
    EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(values_hold_sum(x[0], size, 0, 3) && values_hold(y, size - 1, 0, 3));
    if (size > 1) EXPECT(from_left == (rank + size - 1) % size);
    return 0;
}

/* Timeouts may differ between ranks, and so may an unused factor.  A root may send one tensor twice, or from read-only
 * memory. */
static int coalesced_unlike(tutti_group *group, int rank, int size, void *argument)
{
    enum { BYTES = 4096 };
    int32_t x = rank, y = rank + 1, z = rank,
            *fixed = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)argument;
    EXPECT(fixed != MAP_FAILED);
    fixed[0] = 7;
    EXPECT(mprotect(fixed, BYTES, PROT_READ) == 0);
    bool root = rank == size - 1;
    EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
    for (int i = 0; i < 2; i++) {
        const tutti_opts *opts = tutti_with(.group = group, .timeout_ms = rank == i ? 5000 : 20000, .factor = rank * i);
        EXPECT(tutti_all_reduce(tutti_view(i == 0 ? &x : &y, 1), TUTTI_SUM, opts) == TUTTI_OK);
    }
    for (int i = 0; i < 2; i++) {
        int32_t *other = i == 0 ? &z : &fixed[1];
        EXPECT(root || i == 0 || mprotect(fixed, BYTES, PROT_READ | PROT_WRITE) == 0);
        EXPECT(tutti_broadcast(tutti_view(root ? fixed : other, 1), size - 1, tutti_with(.group = group)) == TUTTI_OK);
    }
    EXPECT(tutti_coalesce_end(group, NULL) == TUTTI_OK);
    EXPECT(x == size * (size - 1) / 2 && y == x + size);
    EXPECT(root || (z == 7 && fixed[1] == 7));
    EXPECT(munmap(fixed, BYTES) == 0);
    return 0;
}

static void each_size(rank_fn fn)
{
    for (int size = 1; size <= 7; size++) ranks_run(size, fn, NULL);
}

static void test_coalesced(void **state)
{
    (void)state;
    each_size(coalesced);
}

static void test_coalesced_unlike(void **state)
{
    (void)state;
    each_size(coalesced_unlike);
}

static int sum_both(tutti_group *group, int32_t *x, int32_t *y)
{
    EXPECT(tutti_all_reduce(tutti_view(x, 3), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(y, 3), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

/* Small operations that are packed into one keep their order with those before, between and behind them. */
static int coalesced_in_order(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    int32_t x[3] = {1, 1, 1}, y[3] = {1, 1, 1}, z[5] = {0};
    tutti_work *before = NULL, *range = NULL, *behind = NULL;
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    if (rank == size - 1) usleep(50000); /* the first operation is under way when the others are issued */
    EXPECT(tutti_all_reduce(tutti_view(x, 3), TUTTI_SUM, tutti_with(.group = group, .async_op = &before)) == TUTTI_OK);
    EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
    EXPECT(sum_both(group, x, y) == 0);
    EXPECT(tutti_scan(tutti_view(x, 3), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK); /* times rank + 1 */
    EXPECT(tutti_broadcast(tutti_view(x, 3), size - 1, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(sum_both(group, x, y) == 0);
    EXPECT(tutti_coalesce_end(group, &range) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(x, 3), TUTTI_SUM, tutti_with(.group = group, .async_op = &behind)) == TUTTI_OK);
    EXPECT(tutti_wait(&behind, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(tutti_wait(&range, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(tutti_wait(&before, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    for (int i = 0; i < 3; i++) EXPECT(x[i] == size * size * size * size * size && y[i] == size * size);

    /* broadcasts to the same memory: the last one counts */
    for (int i = 0; rank == 0 && i < 3; i++) x[i] = 1 + i, y[i] = 10 + i;
    EXPECT(tutti_coalesce_begin(group) == TUTTI_OK);
    EXPECT(tutti_broadcast(tutti_view(rank == 0 ? x : z, 3), 0, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_broadcast(tutti_view(rank == 0 ? y : z + 2, 3), 0, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_coalesce_end(group, NULL) == TUTTI_OK);
    for (int i = 0; rank != 0 && i < 5; i++) EXPECT(z[i] == (i < 2 ? 1 + i : 8 + i));
    return 0;
}

static void test_coalesced_in_order(void **state)
{
    (void)state;
    each_size(coalesced_in_order);
}

int main(void)
{
    ranks_setup();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coalesced),
        cmocka_unit_test(test_coalesced_unlike),
        cmocka_unit_test(test_coalesced_in_order),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    setenv("LOOP_HOSTS", "0,1,0,0,2", 1); /* again, on several hosts */
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
