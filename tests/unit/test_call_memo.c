/* Valid calls: at the limits, and with one thing changed since the last call.  The checks of the last call must not
 * stand for the changed one.  One rank of three also makes mistakes in between. */
#include <sched.h>

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

/* ---- messages that differ in more than one thing --------------------------------------------------------------- */

enum { MESSAGES = 96 };

/* In the pair {1, 0} a rank's number in the group is that of its peer in the world. */
static tutti_opts opts_of(tutti_group *pair, int i)
{
    return (tutti_opts){.group = pair,
                        .tag = i % 5 == 4 ? INT32_MAX : i % 5,
                        .group_rank = i / 6 % 2 == 1,
                        .timeout_ms = i % 7 == 6 ? TUTTI_INFINITE : i % 7 * 100000};
}

static int64_t numel_of(int i)
{
    return i % 12 >= 10 ? 0 : 1 + i / 24 % 2;
}

static int send_message(tutti_group *group, int i, int peer, tutti_opts opts)
{
    int64_t x[2] = {100 * i, 100 * i + 1};
    tutti_tensor tensor = tutti_view(x, numel_of(i));
    tutti_work *work = NULL;
    int way = i / 2 % 3;
    if (way == 1) opts.async_op = &work;
    EXPECT((way == 2 ? tutti_isend(tensor, peer, &opts, &work) : tutti_send(tensor, peer, &opts)) == TUTTI_OK);
    EXPECT((work != NULL) == (way > 0));
    EXPECT(work == NULL || tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    return 0;
}

/* Calls that differ from the last message in a thing that is wrong. */
static int wrong_messages(tutti_group *group, int peer, int self, tutti_opts opts)
{
    int64_t x = 0;
    tutti_opts no_tag = opts, no_time = opts;
    no_tag.tag = -1;
    no_time.timeout_ms = -1;
    INVALID(tutti_send(tutti_view(&x, 1), peer, &no_tag), "send|tag is -1");
    INVALID(tutti_send(tutti_view(&x, 1), peer, &no_time), "send|timeout_ms is -1");
    INVALID(tutti_send(tutti_view(&x, 1), 2, &opts), opts.group_rank ? "dst is 2|a rank" : "dst is 2|global rank");
    INVALID(tutti_send(tutti_view(&x, 1), self, &opts), "this rank itself");
    INVALID(tutti_send(tutti_view(&x, 1), TUTTI_ANY_SOURCE, &opts), "dst is -1");
    no_tag.tag = -2;
    INVALID(tutti_recv(tutti_view(&x, 1), peer, &no_tag), "recv|tag is -2");
    INVALID(tutti_recv(tutti_view(&x, 1), self, &opts), "this rank itself");
    (void)group;
    return 0;
}

static int receive_message(tutti_group *group, int i, int peer, tutti_opts opts)
{
    int64_t x[2] = {-1, -1}, numel = numel_of(i), received = -1;
    int way = i / 2 % 8, from = way == 4 || way == 6 ? TUTTI_ANY_SOURCE : peer, source = -5, tag = -5, sent = opts.tag;
    tutti_work *work = NULL;
    if (way > 0) opts.source = &source;
    if (way > 0) opts.received_tag = &tag;
    if (way == 2) opts.received = &received;
    if (way == 3 || way == 7) opts.tag = TUTTI_ANY_TAG;
    if (way == 6) opts.async_op = &work;
    tutti_tensor tensor = tutti_view(x, way == 2 ? 2 : numel);
    bool async = way == 5 || way == 7;
    EXPECT((async ? tutti_irecv(tensor, from, &opts, &work) : tutti_recv(tensor, from, &opts)) == TUTTI_OK);
    EXPECT((work != NULL) == (way > 4));
    while (work != NULL && !tutti_work_is_completed(work)) sched_yield();
    EXPECT(work == NULL || (tutti_work_source(work) == peer && tutti_work_tag(work) == sent));
    EXPECT(work == NULL || (tutti_work_received(work) == 8 * numel && tutti_wait(&work, TUTTI_NOW) == TUTTI_OK));
    EXPECT(way == 0 || (source == peer && tag == sent));
    EXPECT(received == (way == 2 ? 8 * numel : -1));
    for (int64_t k = 0; k < 2; k++) EXPECT(x[k] == (k < numel ? 100 * i + k : -1));
    return 0;
}

/* A receive like the last one takes a shorter message if it asks for any size. */
static int short_messages(tutti_group *group, int peer, tutti_group *pair)
{
    const tutti_opts *opts = tutti_with(.group = pair);
    int64_t x[2] = {5, 6}, y[2] = {0, 0}, received = 0;
    tutti_work *work[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) EXPECT(tutti_isend(tutti_view(x, 2 - i), peer, opts, &work[i]) == TUTTI_OK);
    EXPECT(tutti_recv(tutti_view(y, 2), peer, opts) == TUTTI_OK && y[1] == 6);
    y[1] = 0;
    EXPECT(tutti_recv(tutti_view(y, 2), peer, tutti_with(.group = pair, .received = &received)) == TUTTI_OK);
    EXPECT(received == 8 && y[0] == 5 && y[1] == 0);
    for (int i = 0; i < 2; i++) EXPECT(tutti_wait(&work[i], TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    return 0;
}

/* Messages of a coalesced range are kept until its end, also if they are like the last one. */
static int coalesced_messages(tutti_group *group, int peer, tutti_group *pair)
{
    const tutti_opts *opts = tutti_with(.group = pair);
    int64_t x = 7, y = 0;
    tutti_work *work = NULL;
    EXPECT(tutti_isend(tutti_view(&x, 1), peer, opts, &work) == TUTTI_OK);
    EXPECT(tutti_recv(tutti_view(&y, 1), peer, opts) == TUTTI_OK && y == 7);
    EXPECT(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    EXPECT(tutti_coalesce_begin(pair) == TUTTI_OK);
    EXPECT(tutti_recv(tutti_view(&y, 1), peer, opts) == TUTTI_OK);
    EXPECT(tutti_send(tutti_view(&x, 1), peer, opts) == TUTTI_OK);
    x = 8; /* the range has not started */
    EXPECT(tutti_coalesce_end(pair, NULL) == TUTTI_OK && y == 8);
    return 0;
}

/* A receive like the last one has its own timeout, and its error names its own tag. */
static int late_messages(tutti_group *group, int peer, tutti_group *pair)
{
    int64_t x = 0;
    tutti_stats before, after;
    EXPECT(tutti_get_stats(pair, &before) == TUTTI_OK);
    REFUSED(tutti_recv(tutti_view(&x, 1), peer, tutti_with(.group = pair, .tag = 77, .timeout_ms = 10)), TIMEOUT,
            peer == 0 ? "recv from rank 0, tag 77" : "recv from rank 1, tag 77");
    REFUSED(tutti_recv(tutti_view(&x, 1), peer, tutti_with(.group = pair, .tag = 78, .timeout_ms = TUTTI_NOW)), TIMEOUT,
            "tag 78");
    EXPECT(tutti_get_stats(pair, &after) == TUTTI_OK && after.failed == before.failed + 2);
    EXPECT(after.operations[TUTTI_RECV] == before.operations[TUTTI_RECV] + 2);
    return 0;
}

static int other_messages(tutti_group *group, int rank, int size, void *argument)
{
    tutti_group *pair = NULL;
    tutti_stats stats;
    int64_t x = 0;
    int line = 0;
    (void)size;
    (void)argument;
    EXPECT(tutti_new_group((int[]){1, 0}, 2, &(tutti_group_opts){.parent = group}, &pair) == TUTTI_OK);
    for (int i = 0; i < MESSAGES && rank < 2 && line == 0; i++) {
        tutti_opts opts = opts_of(pair, i);
        int peer = opts.group_rank ? rank : 1 - rank;
        line = i % 2 == rank ? send_message(group, i, peer, opts) : receive_message(group, i, peer, opts);
        if (line == 0) line = wrong_messages(group, peer, 1 - peer, opts);
    }
    if (line != 0) return line;
    EXPECT(rank == 2 || tutti_get_stats(pair, &stats) == TUTTI_OK);
    EXPECT(rank == 2 || (stats.operations[TUTTI_SEND] == MESSAGES / 2 && stats.operations[TUTTI_RECV] == MESSAGES / 2));
    if (rank < 2) line = short_messages(group, 1 - rank, pair);
    if (rank < 2 && line == 0) line = coalesced_messages(group, 1 - rank, pair);
    if (rank < 2 && line == 0) line = late_messages(group, 1 - rank, pair);
    if (line != 0) return line;
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(rank == 2 || tutti_abort(pair, "test") == TUTTI_OK);
    if (rank < 2)
        REFUSED(tutti_send(tutti_view(&x, 1), 1 - rank, tutti_with(.group = pair)), ABORTED, "aborted by rank");
    EXPECT(tutti_destroy_process_group(pair) == TUTTI_OK);
    return 0;
}

static void test_other_messages(void **state)
{
    (void)state;
    ranks_run(SIZE, other_messages, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),          cmocka_unit_test(test_again),      cmocka_unit_test(test_again_in_pair),
        cmocka_unit_test(test_other_memory),   cmocka_unit_test(test_other_sums), cmocka_unit_test(test_other_peers),
        cmocka_unit_test(test_other_messages),
    };
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
