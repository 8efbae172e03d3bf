/* Cases of repeated results, of coalesced operations, and of a huge message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "conformance/cases.h"
#include "conformance/input.h"
#include "conformance/options.h"
#include "conformance/scoreboard.h"

enum { N = 30011 };

static void fill(const struct rank *rank, float *x, int64_t n)
{
    struct input_use use = {.input = INPUT_ROUNDED, .dtype = TUTTI_FLOAT32, .op = TUTTI_SUM};
    input_fill(rank->seed, use, rank->rank, 0, n, x);
}

/* Checks that results repeat: rounding depends on the order of reduction, and that order must not vary. */
static enum verdict repeats(struct rank *rank)
{
    static _Thread_local float x[N], first[N];
    static const int64_t counts[] = {5, 1009, N};
    tutti_opts opts = {.group = rank->groups[WORLD]};
    for (int c = 0; c < 3; c++)
        for (int round = 0; round < 6; round++) {
            fill(rank, x, counts[c]);
            if ((round + rank->rank) % 3 == 0) usleep(1000); /* a different rank is last each time */
            TRY(tutti_all_reduce(tutti_view(x, counts[c]), TUTTI_SUM, &opts));
            if (round == 0) memcpy(first, x, sizeof first);
            FAIL_UNLESS(memcmp(first, x, (size_t)counts[c] * sizeof *x) == 0);
        }
    rank_bits(rank, x, sizeof x);
    return PASSED;
}

/* Checks that the result of an element does not depend on the message's size, the operation, or the position. */
static enum verdict compare_all(struct rank *rank, tutti_group *group)
{
    static _Thread_local float x[N], whole[N], part[N + 1];
    tutti_opts opts = {.group = group};
    int64_t each = N / rank->size;
    fill(rank, x, N);
    TRY(tutti_all_reduce_into(tutti_view(whole, N), tutti_view(x, N), TUTTI_SUM, &opts));
    for (int64_t n = 1; n < N; n = n * 7 + 1) {
        char *odd = (char *)part + 1; /* unaligned, in place */
        memcpy(odd, x, (size_t)n * sizeof *x);
        TRY(tutti_all_reduce(tutti_tensor_of(odd, n, TUTTI_FLOAT32), TUTTI_SUM, &opts));
        FAIL_UNLESS(memcmp(odd, whole, (size_t)n * sizeof *x) == 0);
    }
    TRY(tutti_reduce_into(tutti_view(part, N), tutti_view(x, N), 0, TUTTI_SUM, &opts));
    FAIL_UNLESS(rank->rank != 0 || memcmp(part, whole, sizeof whole) == 0);
    TRY(tutti_reduce_scatter_tensor(tutti_view(part, each), tutti_view(x, each * rank->size), TUTTI_SUM, &opts));
    FAIL_UNLESS(memcmp(part, whole + each * rank->rank, (size_t)each * sizeof *x) == 0);
    return PASSED;
}

static enum verdict deterministic(struct rank *rank)
{
    tutti_store *store = NULL;
    tutti_group *group = NULL;
    setenv("TUTTI_DETERMINISTIC", "1", 1);
    int status = tutti_store_prefix(rank->store, "deterministic", &store);
    if (status == TUTTI_OK)
        status = tutti_create_group(rank->options->backend, store, rank->rank, rank->size,
                                    &(tutti_group_opts){.timeout_ms = 20000}, &group);
    enum verdict verdict =
        status == TUTTI_OK ? compare_all(rank, group) : rank_status(rank, __FILE__, __LINE__, "create_group", status);
    if (group != NULL && verdict == FAILED) tutti_abort(group, "a case failed on this rank");
    if (group != NULL) tutti_destroy_process_group(group);
    tutti_store_free(store);
    unsetenv("TUTTI_DETERMINISTIC");
    return verdict;
}

/* Coalesces several operations and waits for them at once or later. */
static enum verdict coalesced(struct rank *rank)
{
    enum { SMALL = 12 };
    tutti_group *group = rank->groups[WORLD];
    tutti_opts opts = {.group = group};
    int32_t x[SMALL][7], all[RANKS_MAX], own = rank->rank, root = rank->rank == 0 ? 99 : 0, in = -1;
    int right = (rank->rank + 1) % rank->size, left = (rank->rank + rank->size - 1) % rank->size;
    for (int blocking = 0; blocking < 2; blocking++) {
        tutti_work *work = NULL;
        TRY(tutti_coalesce_begin(group));
        for (int i = 0; i < SMALL; i++) {
            for (int k = 0; k < 7; k++) x[i][k] = rank->rank * k + i;
            TRY(tutti_all_reduce(tutti_view(x[i], 7), i % 3 == 0 ? TUTTI_MAX : TUTTI_SUM, &opts));
        }
        TRY(tutti_all_gather_into_tensor(tutti_view(all, rank->size), tutti_view(&own, 1), &opts));
        TRY(tutti_broadcast(tutti_view(&root, 1), 0, &opts));
        if (rank->size > 1) {
            TRY(tutti_recv(tutti_view(&in, 1), left, &opts));
            TRY(tutti_send(tutti_view(&own, 1), right, &opts));
        }
        TRY(tutti_coalesce_end(group, blocking ? NULL : &work));
        if (!blocking) TRY(tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT));
        int sum = rank->size * (rank->size - 1) / 2;
        for (int i = 0; i < SMALL; i++)
            for (int k = 0; k < 7; k++)
                FAIL_UNLESS(x[i][k] == (i % 3 == 0 ? (rank->size - 1) * k + i : sum * k + i * rank->size));
        for (int i = 0; i < rank->size; i++) FAIL_UNLESS(all[i] == i);
        FAIL_UNLESS(root == 99 && (rank->size == 1 || in == left));
    }
    return PASSED;
}

/* Returns zeroed bytes, or NULL without memory for them, and on 32 bits. */
static uint8_t *zeroed(int64_t bytes)
{
    return (uint64_t)bytes < PTRDIFF_MAX ? calloc((size_t)bytes, 1) : NULL;
}

static enum verdict huge(struct rank *rank)
{
    int64_t n = (INT64_C(1) << 31) + 12345;
    tutti_opts opts = {.group = rank->groups[WORLD]};
    if (rank->rank > 1) n = 0;
    uint8_t *x = zeroed(n + 1);
    if (x == NULL) return rank_fail(rank, "no memory for %lld bytes", (long long)n);
    int status = TUTTI_OK;
    if (rank->rank == 0)
        for (int64_t i = 0; i < n; i += 4096) x[i] = (uint8_t)(i >> 12);
    if (rank->rank == 0) x[n - 1] = 77, status = tutti_send(tutti_view(x, n), 1, &opts);
    if (rank->rank == 1) status = tutti_recv(tutti_view(x, n), 0, &opts);
    bool right = x[n > 0 ? n - 1 : 0] == (n > 0 ? 77 : 0) && x[n] == 0;
    for (int64_t i = 0; i < n; i += 4096) right &= x[i] == (uint8_t)(i >> 12);
    free(x);
    TRY(status);
    FAIL_UNLESS(right);
    return PASSED;
}

static enum verdict huge_collective(struct rank *rank)
{
    int64_t n = (INT64_C(1) << 31) + 4097;
    uint8_t *x = zeroed(n + 1);
    if (x == NULL) return rank_fail(rank, "no memory for %lld bytes", (long long)n);
    for (int64_t i = 0; i < n; i += 4096) x[i] = (uint8_t)(rank->rank + (i >> 12));
    int status =
        tutti_all_reduce(tutti_view(x, n), TUTTI_SUM, tutti_with(.group = rank->groups[WORLD], .timeout_ms = 120000));
    bool right = x[n] == 0;
    for (int64_t i = 0; i < n; i += 4096)
        right &= x[i] == (uint8_t)(rank->size * (rank->size - 1) / 2 + rank->size * (i >> 12));
    free(x);
    TRY(status);
    FAIL_UNLESS(right);
    return PASSED;
}

const struct case_row hazards_rows[] = {
    {"repeats", repeats, 1, {L_R_REPEATS}, 'b'},
    {"deterministic", deterministic, 1, {L_R_DETERMINISTIC}, 'p'},
    {"coalesced", coalesced, 1, {L_C_COALESCED}, 0},
    {"huge_message", huge, 2, {L_C_HUGE}, 'h'},
    {"huge_all_reduce", huge_collective, 2, {L_C_HUGE}, 'h'},
};
const int n_order_rows = sizeof hazards_rows / sizeof *hazards_rows;
