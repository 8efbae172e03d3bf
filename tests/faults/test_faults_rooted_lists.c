/* Gathers and scatters of lists that fail, or that some ranks complete long before others. */
#include "procs.h"

enum { MOST = 8, LARGE = 400000, SOON_S = PROCS_SOON_S };

static int32_t memory[MOST][LARGE], own[LARGE];

static int gather(int rank, int size, int root, const int64_t *numel)
{
    tutti_tensor list[MOST];
    for (int i = 0; i < size; i++) list[i] = tutti_view(memory[i], numel[i]);
    bool is_root = rank == root;
    return tutti_gather(tutti_view(own, numel[rank]), is_root ? list : NULL, is_root ? size : 0, root, NULL);
}

static int scatter(int rank, int size, int root, int64_t sent, int64_t received)
{
    tutti_tensor list[MOST];
    for (int i = 0; i < size; i++) list[i] = tutti_view(memory[i], i == root ? received : sent);
    bool is_root = rank == root;
    return tutti_scatter(tutti_view(own, received), is_root ? list : NULL, is_root ? size : 0, root, NULL);
}

/* ---- ranks that are done ---------------------------------------------------------------------------------------- */

/* Rank 2's block is in a buffer, so it leaves before the root calls.  Rank 1's is read from memory. */
static int rank_that_leaves(int rank, int size, void *argument)
{
    const int64_t *numel = argument;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    for (int64_t k = 0; k < numel[rank]; k++) own[k] = rank + 7;
    if (rank == 0) {
        proc_wait_for_step(2, 1);
        procs_sleep_ms(300); /* until the process has ended */
    }
    EXPECT(gather(rank, size, 0, numel) == TUTTI_OK);
    for (int i = 0; rank == 0 && i < size; i++)
        for (int64_t k = 0; k < numel[i]; k++) EXPECT(memory[i][k] == i + 7);
    if (rank == 2) proc_set_step(1);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_a_rank_that_leaves(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_that_leaves, (int64_t[]){5, 5, 5});
    procs_run_ranks(3, rank_that_leaves, (int64_t[]){5, LARGE, 5});
    procs_run_ranks(3, rank_that_leaves, (int64_t[]){LARGE, LARGE, 0});
    procs_run_ranks(3, rank_that_leaves, (int64_t[]){LARGE, LARGE, 1000});
}

/* ---- sizes that differ ------------------------------------------------------------------------------------------ */

/* Several ranks find that the root's block has another size, once the root has posted. */
static int rank_that_refuses(int rank, int size, void *argument)
{
    int64_t numel = *(const int64_t *)argument;
    int root = size - 1;
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    if (rank != root) proc_wait_for_step(root, 1);
    if (rank == root) proc_set_step(1);
    if (rank != root) procs_sleep_ms(200);
    int64_t begin = monotonic_ns();
    int status = scatter(rank, size, root, numel + 1, numel);
    if (rank != root) EXPECT_ERROR(status, TUTTI_ERR_MISMATCH, "bytes");
    if (rank == root && status == TUTTI_OK) status = tutti_barrier(NULL);
    EXPECT(status == TUTTI_ERR_MISMATCH);
    EXPECT_WITHIN(begin, 0, 3);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

static void test_several_that_refuse(void **state)
{
    (void)state;
    static const int64_t sizes[] = {5, 1000, 20000, 300000};
    for (int n = 2; n <= 4; n++)
        for (int i = 0; i < 4; i++) procs_run_ranks(n, rank_that_refuses, (void *)(uintptr_t)&sizes[i]);
}

/* ---- calls that differ ------------------------------------------------------------------------------------------ */

/* Gathers or scatters blocks of one size. */
static int call_list(int rank, int size, bool scatters, int root, int64_t numel)
{
    int64_t all[MOST];
    for (int i = 0; i < size; i++) all[i] = numel;
    return scatters ? scatter(rank, size, root, numel, numel) : gather(rank, size, root, all);
}

/* Makes the ranks call together. */
static int begin_differing(int size, int64_t *begin)
{
    EXPECT(proc_init(20000) == TUTTI_OK);
    EXPECT(tutti_barrier(NULL) == TUTTI_OK);
    proc_barrier(size, 1);
    *begin = monotonic_ns();
    return 0;
}

/* Every rank gets MISMATCH soon: from its call, or from the next one. */
static int end_differing(int size, int status, int64_t begin)
{
    proc_barrier(size, 2);
    if (status == TUTTI_OK) status = tutti_barrier(NULL);
    EXPECT(status == TUTTI_ERR_MISMATCH);
    EXPECT_WITHIN(begin, 0, SOON_S);
    proc_barrier(size, 3);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    return 0;
}

/* ---- roots that differ ------------------------------------------------------------------------------------------ */

struct roots {
    bool scatters, next; /* each names the next rank, not itself */
    int64_t numel;
};

static int rank_of_all_roots(int rank, int size, void *argument)
{
    const struct roots *c = argument;
    int64_t begin;
    EXPECT(begin_differing(size, &begin) == 0);
    int root = c->next ? (rank + 1) % size : rank;
    return end_differing(size, call_list(rank, size, c->scatters, root, c->numel), begin);
}

static void test_all_roots(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++)
        for (int i = 0; i < 8; i++)
            procs_run_ranks(n, rank_of_all_roots, &(struct roots){i & 1, i & 2, i & 4 ? 300000 : 5});
}

/* ---- other calls ------------------------------------------------------------------------------------------------ */

struct other {
    bool scatters, reverse; /* the last rank alone calls the other one: or else all the others do */
    int other;
    int64_t numel;
};

static int call_other(int rank, int size, int other, int64_t numel)
{
    int root = 0;
    tutti_tensor one = tutti_view(own, numel), every = tutti_view(&memory[0][0], numel * size);
    switch (other) {
    case 0:
        return tutti_all_reduce(one, TUTTI_SUM, NULL);
    case 1:
        return tutti_gather_into_tensor(every, one, root, NULL);
    case 2:
        return tutti_scatter_tensor(one, every, root, NULL);
    case 3:
        return tutti_barrier(NULL);
    case 4:
        return call_list(rank, size, false, 1, numel);
    case 5:
        return call_list(rank, size, true, 1, numel);
    case 6:
        return tutti_broadcast(one, root, NULL);
    case 7:
        return tutti_reduce(one, root, TUTTI_SUM, NULL);
    default:
        return tutti_all_gather_into_tensor(every, one, NULL);
    }
}

static int rank_of_others(int rank, int size, void *argument)
{
    const struct other *c = argument;
    int64_t begin;
    EXPECT(begin_differing(size, &begin) == 0);
    bool calls_other = (rank == size - 1) != c->reverse;
    int status =
        calls_other ? call_other(rank, size, c->other, c->numel) : call_list(rank, size, c->scatters, 0, c->numel);
    return end_differing(size, status, begin);
}

static void test_others(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++)
        for (int other = 0; other < 9; other++)
            for (int i = 0; i < 8; i++)
                procs_run_ranks(n, rank_of_others, &(struct other){i & 1, i & 2, other, i & 4 ? 300000 : 5});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_rank_that_leaves),
                                       cmocka_unit_test(test_several_that_refuse), cmocka_unit_test(test_all_roots),
                                       cmocka_unit_test(test_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
