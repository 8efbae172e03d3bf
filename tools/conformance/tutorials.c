/* Cases that run the tutorials' programs on any number of ranks, and check their results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/scoreboard.h"

static tutti_opts world(struct rank *rank)
{
    return (tutti_opts){.group = rank->groups[WORLD]};
}

static float sum_of(const struct rank *rank)
{
    return (float)(rank->size * (rank->size - 1) / 2);
}

static enum verdict hello(struct rank *rank)
{
    FAIL_UNLESS(tutti_get_rank(rank->groups[WORLD]) == rank->rank);
    FAIL_UNLESS(tutti_get_world_size(rank->groups[WORLD]) == rank->size);
    return PASSED;
}

static enum verdict send_recv(struct rank *rank)
{
    tutti_opts opts = world(rank);
    float x = rank->rank == 0 ? 42 : 0;
    if (rank->rank == 0) TRY(tutti_send(tutti_view(&x, 1), 1, &opts));
    if (rank->rank == 1) TRY(tutti_recv(tutti_view(&x, 1), 0, &opts));
    FAIL_UNLESS(x == (rank->rank < 2 ? 42 : 0));
    return PASSED;
}

static enum verdict exchange(struct rank *rank)
{
    tutti_opts opts = world(rank);
    float out = (float)rank->rank + 10, in = -1;
    tutti_work *sent = NULL, *received = NULL;
    if (rank->rank > 1) return PASSED;
    TRY(tutti_isend(tutti_view(&out, 1), 1 - rank->rank, &opts, &sent));
    TRY(tutti_irecv(tutti_view(&in, 1), 1 - rank->rank, &opts, &received));
    TRY(tutti_wait(&sent, TUTTI_DEFAULT_TIMEOUT));
    TRY(tutti_wait(&received, TUTTI_DEFAULT_TIMEOUT));
    FAIL_UNLESS(in == (float)(1 - rank->rank) + 10);
    return PASSED;
}

static enum verdict broadcast(struct rank *rank)
{
    tutti_opts opts = world(rank);
    bool root = rank->rank == 0;
    float x[5] = {0};
    int64_t y[3] = {0};
    for (int i = 0; root && i < 5; i++) x[i] = (float)i + 1;
    for (int i = 0; root && i < 3; i++) y[i] = i + 1;
    TRY(tutti_broadcast(tutti_view(x, 5), 0, &opts));
    TRY(tutti_broadcast(tutti_view(y, 3), 0, &opts));
    for (int i = 0; i < 5; i++) FAIL_UNLESS(x[i] == (float)i + 1);
    for (int i = 0; i < 3; i++) FAIL_UNLESS(y[i] == i + 1);
    return PASSED;
}

static enum verdict lists(struct rank *rank)
{
    tutti_opts opts = world(rank);
    bool root = rank->rank == 0;
    float own = (float)rank->rank, x[RANKS_MAX], got = -1;
    tutti_tensor list[RANKS_MAX];
    for (int i = 0; i < rank->size; i++) x[i] = -1, list[i] = tutti_view(&x[i], 1);
    TRY(tutti_gather(tutti_view(&own, 1), root ? list : NULL, root ? rank->size : 0, 0, &opts));
    for (int i = 0; i < rank->size; i++) FAIL_UNLESS(x[i] == (root ? (float)i : -1));
    TRY(tutti_all_gather(list, rank->size, tutti_view(&own, 1), &opts));
    for (int i = 0; i < rank->size; i++) FAIL_UNLESS(x[i] == (float)i);
    TRY(tutti_scatter(tutti_view(&got, 1), root ? list : NULL, root ? rank->size : 0, 0, &opts));
    FAIL_UNLESS(got == own);
    for (int i = 0; i < rank->size; i++) x[i] = own;
    TRY(tutti_reduce_scatter(tutti_view(&got, 1), list, rank->size, TUTTI_SUM, &opts));
    FAIL_UNLESS(got == sum_of(rank));
    return PASSED;
}

static enum verdict reductions(struct rank *rank)
{
    tutti_opts opts = world(rank);
    float x = (float)rank->rank, y = (float)rank->rank + 1, z = (float)rank->rank + 1;
    TRY(tutti_reduce(tutti_view(&x, 1), 0, TUTTI_SUM, &opts));
    FAIL_UNLESS(x == (rank->rank == 0 ? sum_of(rank) : (float)rank->rank));
    x = (float)rank->rank;
    TRY(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, &opts));
    TRY(tutti_all_reduce(tutti_view(&y, 1), TUTTI_SUM, &opts));
    TRY(tutti_all_reduce(tutti_view(&z, 1), TUTTI_AVG, &opts));
    FAIL_UNLESS(x == sum_of(rank) && y == sum_of(rank) + (float)rank->size && z == ((float)rank->size + 1) / 2);
    return PASSED;
}

static enum verdict timed(struct rank *rank)
{
    tutti_opts opts = world(rank);
    float x = (float)rank->rank;
    int64_t start = scoreboard_now_ns();
    TRY(tutti_barrier(&opts));
    TRY(tutti_reduce(tutti_view(&x, 1), 0, TUTTI_SUM, &opts));
    x = (float)rank->rank;
    TRY(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, &opts));
    TRY(tutti_barrier(&opts));
    FAIL_UNLESS(x == sum_of(rank) && scoreboard_now_ns() > start);
    return PASSED;
}

static enum verdict all_to_all(struct rank *rank)
{
    tutti_opts opts = world(rank);
    int n = rank->size;
    int32_t in[RANKS_MAX], out[RANKS_MAX];
    for (int i = 0; i < n; i++) in[i] = n * rank->rank + i;
    TRY(tutti_all_to_all_single(tutti_view(out, n), tutti_view(in, n), NULL, NULL, &opts));
    for (int i = 0; i < n; i++) FAIL_UNLESS(out[i] == n * i + rank->rank);
    return PASSED;
}

static enum verdict async(struct rank *rank)
{
    enum { N = 20000 };
    static _Thread_local float x[N];
    tutti_work *work = NULL;
    volatile double busy = 0;
    for (int i = 0; i < N; i++) x[i] = (float)rank->rank;
    TRY(tutti_all_reduce(tutti_view(x, N), TUTTI_SUM, tutti_with(.group = rank->groups[WORLD], .async_op = &work)));
    for (int i = 0; i < 100000; i++) busy = busy + i;
    TRY(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT));
    for (int i = 0; i < N; i++) FAIL_UNLESS(x[i] == sum_of(rank));
    return PASSED;
}

/* Fits a line by gradient descent.  Each rank has its share of the points. */
enum { POINTS_EACH = 16, STEPS = 40 };

static double loss_and_gradient(int from, int to, const double line[2], double gradient[2])
{
    double loss = 0;
    gradient[0] = gradient[1] = 0;
    for (int i = from; i < to; i++) {
        double t = (double)(i * 37 % 64) / 64, error = line[0] * t + line[1] - (3 * t - 1 + (double)(i % 5) / 50);
        loss += error * error;
        gradient[0] += 2 * error * t;
        gradient[1] += 2 * error;
    }
    gradient[0] /= to - from;
    gradient[1] /= to - from;
    return loss / (to - from);
}

static enum verdict train(struct rank *rank)
{
    tutti_opts opts = world(rank);
    double alone[2] = {0}, ours[2] = {0}, gradient[3];
    for (int step = 0; step < STEPS; step++) {
        double whole = loss_and_gradient(0, POINTS_EACH * rank->size, alone, gradient);
        for (int k = 0; k < 2; k++) alone[k] -= 0.3 * gradient[k];
        gradient[2] = loss_and_gradient(POINTS_EACH * rank->rank, POINTS_EACH * (rank->rank + 1), ours, gradient);
        TRY(tutti_all_reduce(tutti_view(gradient, 3), TUTTI_AVG, &opts));
        for (int k = 0; k < 2; k++) ours[k] -= 0.3 * gradient[k];
        FAIL_UNLESS(gradient[2] - whole < 1e-12 && whole - gradient[2] < 1e-12);
    }
    return PASSED;
}

const struct case_row tutorial_rows[] = {
    {"hello", hello, 1, {L_T_HELLO}, 0},
    {"send_recv", send_recv, 2, {L_T_SEND_RECV}, 0},
    {"isend_irecv", exchange, 2, {L_T_EXCHANGE}, 0},
    {"broadcast", broadcast, 1, {L_T_BROADCAST}, 0},
    {"lists", lists, 1, {L_T_GATHER, L_T_ALL_GATHER, L_T_SCATTER, L_T_REDUCE_SCATTER}, 0},
    {"reductions", reductions, 1, {L_T_REDUCE, L_T_ALL_REDUCE}, 0},
    {"timed", timed, 1, {L_T_TIMED}, 0},
    {"all_to_all_single", all_to_all, 1, {L_T_ALL_TO_ALL}, 0},
    {"async_all_reduce", async, 1, {L_T_ASYNC}, 0},
    {"train", train, 1, {L_T_TRAIN}, 0},
};
const int n_tutorial_rows = sizeof tutorial_rows / sizeof *tutorial_rows;
