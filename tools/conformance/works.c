/* Cases of Work handles, barriers, and the order of operations. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/cases.h"
#include "conformance/scoreboard.h"

enum { WAIT = 20000, N = 40000 };

static int start(struct rank *rank, int32_t *x, int64_t n, tutti_work **work)
{
    for (int64_t i = 0; i < n; i++) x[i] = rank->rank + 1;
    return tutti_all_reduce(tutti_view(x, n), TUTTI_SUM, tutti_with(.group = rank->groups[WORLD], .async_op = work));
}

static bool summed(const struct rank *rank, const int32_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != rank->size * (rank->size + 1) / 2) return false;
    return true;
}

/* Waits with timeouts.  The last rank calls late, so the others' operation cannot end before. */
static enum verdict wait_runs_out(struct rank *rank)
{
    int32_t x[8];
    tutti_work *work = NULL;
    bool late = rank->rank == rank->size - 1;
    if (late && rank->size > 1) rank_meet(rank);
    TRY(start(rank, x, 8, &work));
    if (!late) {
        FAIL_UNLESS(tutti_wait(&work, 0) == TUTTI_ERR_TIMEOUT && work != NULL);
        FAIL_UNLESS(tutti_work_wait(work, 30) == TUTTI_ERR_TIMEOUT);
        FAIL_UNLESS(tutti_work_status(work) == TUTTI_OK && !tutti_work_is_completed(work));
        FAIL_UNLESS(tutti_work_duration_ns(work) == -1);
        rank_meet(rank);
    }
    REFUSED(tutti_wait(&work, -5), TUTTI_ERR_INVALID_ARGUMENT);
    FAIL_UNLESS(work != NULL);
    TRY(tutti_wait(&work, TUTTI_INFINITE));
    FAIL_UNLESS(work == NULL && summed(rank, x, 8));
    REFUSED(tutti_wait(&work, 0), TUTTI_ERR_INVALID_ARGUMENT);
    return PASSED;
}

static enum verdict ask(struct rank *rank)
{
    int32_t x[8];
    tutti_work *work = NULL, *next = NULL;
    TRY(start(rank, x, 8, &work));
    TRY(tutti_barrier(tutti_with(.group = rank->groups[WORLD], .async_op = &next)));
    FAIL_UNLESS(tutti_work_op(work) == TUTTI_ALL_REDUCE && tutti_work_op(next) == TUTTI_BARRIER);
    FAIL_UNLESS(tutti_work_sequence(work) > 0 && tutti_work_sequence(next) == tutti_work_sequence(work) + 1);
    TRY(tutti_work_wait(work, WAIT));
    FAIL_UNLESS(tutti_work_is_completed(work) && tutti_work_status(work) == TUTTI_OK);
    FAIL_UNLESS(tutti_work_error(work)[0] == '\0' && tutti_work_duration_ns(work) >= 0);
    TRY(tutti_work_wait(work, 0)); /* waiting again returns the same result */
    TRY(tutti_work_wait(work, WAIT));
    TRY(tutti_wait_stream(work, NULL));
    TRY(tutti_wait(&work, WAIT));
    TRY(tutti_wait(&next, WAIT));
    FAIL_UNLESS(summed(rank, x, 8));
    return PASSED;
}

static void count_call(tutti_work *work, void *argument)
{
    (void)work;
    atomic_fetch_add((atomic_int *)argument, 1);
}

static enum verdict then(struct rank *rank)
{
    static _Thread_local atomic_int called, other;
    int32_t x[N];
    tutti_work *work = NULL, *done = NULL;
    atomic_store(&called, 0);
    atomic_store(&other, 0);
    TRY(start(rank, x, N, &work));
    TRY(tutti_work_then(work, count_call, &called));
    REFUSED(tutti_work_then(work, count_call, &other),
            TUTTI_ERR_INVALID_ARGUMENT); /* a Work has at most one callback */
    TRY(tutti_work_wait(work, WAIT));
    for (int i = 0; i < WAIT && atomic_load(&called) == 0; i++) usleep(1000);
    FAIL_UNLESS(atomic_load(&called) == 1 && atomic_load(&other) == 0);
    TRY(tutti_wait(&work, WAIT));
    TRY(start(rank, x, 8, &done));
    TRY(tutti_work_wait(done, WAIT));
    TRY(tutti_work_then(done, count_call, &called)); /* complete already, so the callback runs at once */
    FAIL_UNLESS(atomic_load(&called) == 2);
    TRY(tutti_wait(&done, WAIT));
    return PASSED;
}

static enum verdict all_and_any(struct rank *rank)
{
    enum { WORKS = 6 };
    int32_t x[WORKS][16];
    tutti_work *works[WORKS + 1] = {NULL}; /* NULL entries are skipped */
    bool seen[WORKS + 1] = {false};
    int index = 5;
    for (int i = 0; i < WORKS; i++) TRY(start(rank, x[i], 16, &works[i + (i > 2)]));
    for (int i = 0; i < WORKS; i++) {
        TRY(tutti_wait_any(works, WORKS + 1, WAIT, &index));
        FAIL_UNLESS(index >= 0 && index <= WORKS && index != 3 && !seen[index] && works[index] == NULL);
        FAIL_UNLESS(summed(rank, x[index - (index > 3)], 16));
        seen[index] = true;
    }
    TRY(tutti_wait_any(works, WORKS + 1, WAIT, &index));
    FAIL_UNLESS(index == -1);
    for (int i = 0; i < WORKS; i++) TRY(start(rank, x[i], 16, &works[i + (i > 2)]));
    TRY(tutti_wait_all(works, WORKS + 1, WAIT));
    for (int i = 0; i < WORKS; i++) FAIL_UNLESS(works[i] == NULL && summed(rank, x[i], 16));
    TRY(tutti_wait_all(works, WORKS + 1, 0));
    TRY(tutti_wait_all(NULL, 0, 0));
    return PASSED;
}

/* Polls the descriptor of a Work.  No caller waits, so the progress thread drives the operation. */
static enum verdict descriptor(struct rank *rank)
{
    int32_t x[N];
    tutti_work *work = NULL;
    bool late = rank->rank == rank->size - 1;
    if (late) rank_meet(rank);
    TRY(start(rank, x, N, &work));
    struct pollfd polled = {.fd = tutti_work_fd(work), .events = POLLIN};
    FAIL_UNLESS(polled.fd >= 0);
    if (!late) {
        FAIL_UNLESS(poll(&polled, 1, 10) == 0);
        rank_meet(rank);
    }
    FAIL_UNLESS(poll(&polled, 1, WAIT) == 1 && (polled.revents & POLLIN));
    FAIL_UNLESS(tutti_work_is_completed(work) && summed(rank, x, N));
    FAIL_UNLESS(tutti_work_fd(work) == polled.fd && poll(&polled, 1, 0) == 1);
    TRY(tutti_wait(&work, 0));
    return PASSED;
}

/* Frees Works before their operations complete.  Two operations use the same memory in turn, so the callback of the
 * second shows that both are complete. */
static enum verdict free_early(struct rank *rank)
{
    enum { WORKS = 20 };
    static _Thread_local atomic_int called;
    int32_t *x = malloc(sizeof *x * 1000 * WORKS);
    tutti_opts opts = {.group = rank->groups[WORLD]};
    atomic_store(&called, 0);
    for (int i = 0; i < WORKS; i++) {
        tutti_work *first = NULL, *second = NULL;
        TRY(start(rank, x + i * 1000, 1000, &first));
        tutti_work_free(first);
        opts.async_op = &second;
        TRY(tutti_all_reduce(tutti_view(x + i * 1000, 1000), TUTTI_MAX, &opts));
        TRY(tutti_work_then(second, count_call, &called));
        tutti_work_free(second);
    }
    tutti_work_free(NULL);
    TRY(tutti_barrier(tutti_with(.group = rank->groups[WORLD])));
    for (int i = 0; i < WAIT && atomic_load(&called) < WORKS; i++) usleep(1000); /* no caller waits */
    FAIL_UNLESS(atomic_load(&called) == WORKS && summed(rank, x, 1000 * WORKS));
    free(x);
    return PASSED;
}

/* Uses the same memory in many operations.  They must complete as if run one after another. */
static enum verdict in_order(struct rank *rank)
{
    enum { ROUNDS = 8 };
    tutti_group *group = rank->groups[WORLD];
    static _Thread_local uint32_t x[3000], y[3000];
    tutti_work *works[2 * ROUNDS] = {NULL};
    uint32_t expected = 1;
    for (int i = 0; i < 3000; i++) x[i] = 1, y[i] = 0;
    for (int i = 0; i < ROUNDS; i++) {
        TRY(tutti_all_reduce(tutti_view(x, 3000), TUTTI_SUM, tutti_with(.group = group, .async_op = &works[2 * i])));
        TRY(tutti_all_reduce_into(tutti_view(y, 3000), tutti_view(x, 3000), TUTTI_MAX,
                                  tutti_with(.group = group, .async_op = &works[2 * i + 1])));
        expected *= (uint32_t)rank->size;
    }
    for (int i = 2 * ROUNDS - 1; i >= 0; i--) TRY(tutti_wait(&works[i], WAIT));
    for (int i = 0; i < 3000; i++) FAIL_UNLESS(x[i] == expected && y[i] == expected);
    return PASSED;
}

static enum verdict barrier(struct rank *rank)
{
    usleep((useconds_t)(rank->rank * 7919 % 5 * 4000));
    rank_entered(rank);
    TRY(tutti_barrier(tutti_with(.group = rank->groups[WORLD])));
    return rank_left(rank);
}

static enum verdict barrier_async(struct rank *rank)
{
    tutti_work *work = NULL;
    usleep((useconds_t)((rank->size - rank->rank) * 3000));
    rank_entered(rank);
    TRY(tutti_barrier(tutti_with(.group = rank->groups[WORLD], .async_op = &work)));
    TRY(tutti_wait(&work, WAIT));
    return rank_left(rank);
}

static enum verdict barrier_monitored(struct rank *rank)
{
    usleep((useconds_t)(rank->rank * 4000));
    rank_entered(rank);
    TRY(tutti_monitored_barrier(tutti_with(.group = rank->groups[WORLD])));
    return rank_left(rank);
}

/* Checks that no rank leaves an operation on 0 elements before the last one has entered. */
static enum verdict nothing_synchronises(struct rank *rank)
{
    tutti_tensor nothing = tutti_tensor_of(NULL, 0, TUTTI_FLOAT32);
    usleep((useconds_t)(rank->rank * 4000));
    rank_entered(rank);
    TRY(tutti_all_reduce(nothing, TUTTI_SUM, tutti_with(.group = rank->groups[WORLD])));
    return rank_left(rank);
}

const struct case_row work_rows[] = {
    {"wait_runs_out", wait_runs_out, 2, {L_W_WAIT, L_I_TIMEOUTS, L_W_ASK}, 0},
    {"ask", ask, 1, {L_W_ASK, L_W_TWICE, L_W_WAIT, L_I_TIMEOUTS}, 0},
    {"then", then, 1, {L_W_THEN}, 0},
    {"all_and_any", all_and_any, 1, {L_W_ALL}, 0},
    {"fd", descriptor, 2, {L_W_FD}, 0},
    {"free_early", free_early, 1, {L_W_FREE}, 0},
    {"in_order", in_order, 1, {L_W_ORDER}, 0},
};
const int n_work_rows = sizeof work_rows / sizeof *work_rows;

const struct case_row barrier_rows[] = {
    {"blocking", barrier, 2, {L_C_BARRIER}, 0},
    {"async", barrier_async, 2, {L_C_BARRIER}, 0},
    {"monitored", barrier_monitored, 2, {L_C_MONITORED, L_C_BARRIER}, 0},
    {"nothing", nothing_synchronises, 2, {L_C_ZERO}, 0},
};
const int n_barrier_rows = sizeof barrier_rows / sizeof *barrier_rows;
