/* Valid calls: at the limits, and with one thing changed since the last call.  The checks of the last call must not
 * stand for the changed one.  One rank of three also makes mistakes in between. */
#include "ranks.h"
#include "unit/refusal.h"

enum { SIZE = 3, WRONG = 1 }; /* WRONG: the rank that makes the mistakes */

/* Makes calls with the smallest and largest valid values, so that test_check's calls are refused for the named reason.
 */
static int right(tutti_group *group, int rank, int size, void *argument)
{
    const tutti_opts *opts = tutti_with(.group = group, .timeout_ms = TUTTI_INFINITE, .tag = INT32_MAX);
    tutti_tensor nothing = {NULL, 0, TUTTI_FLOAT32, {TUTTI_CPU, 0}};
    float x[SIZE] = {1, 2, 3}, y[SIZE];
    (void)argument;
    EXPECT(tutti_all_reduce(nothing, TUTTI_SUM, opts) == TUTTI_OK);
    EXPECT(tutti_broadcast(nothing, size - 1, opts) == TUTTI_OK);
    EXPECT(tutti_all_gather_into_tensor(nothing, nothing, opts) == TUTTI_OK);
    EXPECT(tutti_all_to_all_single(tutti_view(y, 3), tutti_view(x, 3), NULL, NULL, opts) == TUTTI_OK);
    EXPECT(y[0] == (float)(rank + 1) && y[2] == (float)(rank + 1));
    int64_t piece[SIZE],
        whole = 0; /* uneven and in place: another part of the same size takes the place of each part */
    for (int i = 0; i < SIZE; i++) whole += piece[i] = 1 + (rank + i) % 3;
    float z[16];
    for (int i = 0, k = 0; i < SIZE; i++)
        for (int64_t left = piece[i]; left > 0; left--) z[k++] = (float)(10 * rank + i);
    EXPECT(tutti_all_to_all_single(tutti_view(z, whole), tutti_view(z, whole), piece, piece, opts) == TUTTI_OK);
    for (int i = 0, k = 0; i < SIZE; i++)
        for (int64_t left = piece[i]; left > 0; left--) EXPECT(z[k++] == (float)(10 * i + rank));
    EXPECT(tutti_gather(tutti_view(x, 1), NULL, 0, 0, opts) == TUTTI_OK || rank == 0);
    EXPECT(rank != 0 || tutti_gather(tutti_view(x, 1),
                                     (tutti_tensor[]){tutti_view(y, 1), tutti_view(y + 1, 1), tutti_view(y + 2, 1)}, 3,
                                     0, opts) == TUTTI_OK);
    EXPECT(tutti_barrier(opts) == TUTTI_OK);
    return 0;
}

static void test_right(void **state)
{
    (void)state;
    ranks_run(SIZE, right, NULL);
}

#define V(from, count) tutti_view(v + (from), count)

static int wrong_sums(tutti_group *group, float *v)
{
    INVALID(tutti_all_reduce(V(0, -4), TUTTI_SUM, tutti_with(.group = group, .tag = 0)), "numel is -4");
    INVALID(tutti_all_reduce(V(0, 4), TUTTI_SUM, tutti_with(.group = group, .tag = -1)), "tag is -1");
    INVALID(tutti_all_reduce(V(0, 4), TUTTI_SUM, tutti_with(.group = group, .timeout_ms = -1)), "timeout_ms is -1");
    INVALID(tutti_all_reduce(V(0, 4), (tutti_reduce_op)99, tutti_with(.group = group, .tag = 0)), "reduce op 99");
    INVALID(tutti_all_reduce(V(0, 4), TUTTI_PREMUL_SUM, tutti_with(.group = group, .tag = 0)), "PREMUL_SUM");
    INVALID(tutti_all_reduce(tutti_on(V(0, 4), (tutti_device){TUTTI_CUDA, 0}), TUTTI_SUM,
                             tutti_with(.group = group, .tag = 0)),
            "CUDA");
    REFUSED(tutti_all_reduce(V(0, 4), TUTTI_BAND, tutti_with(.group = group, .tag = 0)), UNSUPPORTED, "BAND");
    INVALID(tutti_all_reduce_into(V(4, 3), V(0, 4), TUTTI_SUM, tutti_with(.group = group, .tag = 0)), "out has 3");
    INVALID(tutti_all_reduce_into(V(1, 4), V(0, 4), TUTTI_SUM, tutti_with(.group = group, .tag = 0)), "overlap");
    return 0;
}

static int sums(tutti_group *group, int rank, float *v)
{
    const tutti_opts *opts = tutti_with(.group = group);
    for (int i = 0; i < 16; i++) v[i] = (float)(rank + i);
    EXPECT(tutti_all_reduce(V(0, 5), TUTTI_SUM, opts) == TUTTI_OK && v[4] == 15 && v[5] == (float)(rank + 5));
    EXPECT(tutti_all_reduce(V(0, 4), TUTTI_SUM, opts) == TUTTI_OK && v[3] == 36 && v[4] == 15);
    EXPECT(tutti_all_reduce(V(0, 4), TUTTI_MAX, opts) == TUTTI_OK && v[3] == 36);
    EXPECT(tutti_all_reduce(V(0, 4), TUTTI_PREMUL_SUM, tutti_with(.group = group, .factor = 2)) == TUTTI_OK);
    EXPECT(v[3] == 216);
    EXPECT(tutti_all_reduce(V(0, 4), TUTTI_PREMUL_SUM, tutti_with(.group = group, .factor = 0.5)) == TUTTI_OK);
    EXPECT(v[3] == 324);
    if (rank == WRONG)
        INVALID(tutti_all_reduce(V(0, 4), TUTTI_PREMUL_SUM, tutti_with(.group = group, .tag = 0)), "PREMUL_SUM");
    EXPECT(tutti_all_reduce_into(V(8, 4), V(0, 4), TUTTI_SUM, opts) == TUTTI_OK && v[11] == 972 && v[3] == 324);
    EXPECT(tutti_all_reduce_into(V(4, 4), V(0, 4), TUTTI_SUM, opts) == TUTTI_OK && v[7] == 972 && v[3] == 324);
    EXPECT(tutti_all_reduce(V(0, 4), TUTTI_SUM, opts) == TUTTI_OK && v[3] == 972);
    return rank == WRONG ? wrong_sums(group, v) : 0;
}

static int roots_in_turn(tutti_group *group, int rank, float *v)
{
    double d = 0;
    const tutti_opts *opts = tutti_with(.group = group);
    for (int root = 0; root < SIZE; root++) {
        v[0] = (float)rank;
        EXPECT(tutti_reduce_into(V(4, 1), V(0, 1), root, TUTTI_SUM, opts) == TUTTI_OK && (rank != root || v[4] == 3));
        EXPECT(tutti_gather_into_tensor(V(4, 3), V(0, 1), root, opts) == TUTTI_OK);
        EXPECT(rank != root || (v[4] == 0 && v[5] == 1 && v[6] == 2));
        EXPECT(tutti_broadcast(V(0, 1), root, opts) == TUTTI_OK && v[0] == (float)root);
        if (rank != WRONG) continue;
        INVALID(tutti_reduce_into(V(4, 1), tutti_view(&d, 1), WRONG, TUTTI_SUM, tutti_with(.group = group, .tag = 0)),
                "dtype");
        INVALID(tutti_gather_into_tensor(V(4, 2), V(0, 1), WRONG, tutti_with(.group = group, .tag = 0)), "has 2");
        INVALID(tutti_broadcast(V(0, 1), 3, tutti_with(.group = group, .tag = 0)), "root is 3");
    }
    return 0;
}

static int again(tutti_group *group, int rank, int size, void *argument)
{
    float v[16];
    int line = 0;
    (void)size;
    (void)argument;
    for (int turn = 0; turn < 4 && line == 0; turn++) {
        line = sums(group, rank, v);
        if (line == 0) line = roots_in_turn(group, rank, v);
    }
    return line;
}

static void test_again(void **state)
{
    (void)state;
    ranks_run(SIZE, again, NULL);
}

/* The same number means different ranks with group_rank and without. */
static int again_in_pair(tutti_group *group, int rank, int size, void *argument)
{
    tutti_group *pair = NULL;
    (void)size;
    (void)argument;
    EXPECT(tutti_new_group((int[]){1, 0}, 2, &(tutti_group_opts){.parent = group}, &pair) == TUTTI_OK);
    for (int turn = 0; turn < 8 && rank < 2; turn++) {
        bool group_rank = turn & 1;
        int value = rank;
        EXPECT(tutti_broadcast(tutti_view(&value, 1), 0, tutti_with(.group = pair, .group_rank = group_rank)) ==
               TUTTI_OK);
        EXPECT(value == group_rank);
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(pair) == TUTTI_OK);
    return 0;
}

static void test_again_in_pair(void **state)
{
    (void)state;
    ranks_run(SIZE, again_in_pair, NULL);
}

/* A message like the last one but for its memory is checked no more, but NULL still is. */
static int other_memory(tutti_group *group, int rank, int size, void *argument)
{
    const tutti_opts *opts = tutti_with(.group = group);
    int64_t x[4] = {0};
    tutti_tensor none = {NULL, 1, TUTTI_INT64, {TUTTI_CPU, 0}};
    (void)size;
    (void)argument;
    for (int i = 0; i < 4 && rank < 2; i++) {
        if (rank == 0) x[i] = 7 + i;
        if (rank == 0) EXPECT(tutti_send(tutti_view(&x[i], 1), 1, opts) == TUTTI_OK);
        if (rank == 1) EXPECT(tutti_recv(tutti_view(&x[i], 1), 0, opts) == TUTTI_OK && x[i] == 7 + i);
    }
    if (rank == 0) INVALID(tutti_send(none, 1, opts), "data is NULL");
    if (rank == 1) INVALID(tutti_recv(none, 0, opts), "data is NULL");
    return 0;
}

static void test_other_memory(void **state)
{
    (void)state;
    ranks_run(SIZE, other_memory, NULL);
}

/* A collective like the last one but for its memory works on that memory, and NULL is still refused. */
static int other_sums(tutti_group *group, int rank, int size, void *argument)
{
    const tutti_opts *opts = tutti_with(.group = group);
    int64_t x[4], y;
    tutti_tensor none = {NULL, 1, TUTTI_INT64, {TUTTI_CPU, 0}};
    (void)argument;
    for (int i = 0; i < 4; i++) x[i] = rank + 10 * i;
    for (int i = 0; i < 4; i++) {
        EXPECT(tutti_all_reduce(tutti_view(&x[i], 1), TUTTI_SUM, opts) == TUTTI_OK);
        EXPECT(x[i] == 3 + (int64_t)size * 10 * i && (i == 3 || x[i + 1] == rank + 10 * (i + 1)));
        INVALID(tutti_all_reduce(none, TUTTI_SUM, opts), "data is NULL");
    }
    EXPECT(tutti_all_reduce_into(tutti_view(&y, 1), tutti_view(&x[0], 1), TUTTI_SUM, opts) == TUTTI_OK && y == 9);
    EXPECT(x[0] == 3);
    EXPECT(tutti_all_reduce(tutti_view(&x[0], 1), TUTTI_SUM, opts) == TUTTI_OK && x[0] == 9 && y == 9);
    return 0;
}

static void test_other_sums(void **state)
{
    (void)state;
    ranks_run(SIZE, other_sums, NULL);
}

/* A message like the last one but for its peer goes to that peer, and a wrong one is still refused. */
static int other_peers(tutti_group *group, int rank, int size, void *argument)
{
    const tutti_opts *opts = tutti_with(.group = group);
    (void)argument;
    for (int i = 0; i < 8; i++) {
        int64_t x = 0;
        int peer = 1 + i % 2;
        if (rank == 0) x = 7 + i;
        if (rank == 0) EXPECT(tutti_send(tutti_view(&x, 1), peer, opts) == TUTTI_OK);
        if (rank == peer) EXPECT(tutti_recv(tutti_view(&x, 1), 0, opts) == TUTTI_OK && x == 7 + i);
        if (rank != 0) continue;
        INVALID(tutti_send(tutti_view(&x, 1), size, opts), "dst is 3");
        INVALID(tutti_send(tutti_view(&x, 1), 0, opts), "this rank itself");
    }
    return 0;
}

static void test_other_peers(void **state)
{
    (void)state;
    ranks_run(SIZE, other_peers, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),        cmocka_unit_test(test_again),      cmocka_unit_test(test_again_in_pair),
        cmocka_unit_test(test_other_memory), cmocka_unit_test(test_other_sums), cmocka_unit_test(test_other_peers),
    };
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
