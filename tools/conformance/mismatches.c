/* Cases in which calls differ, ranks do not call, or a group is aborted.  Each case fails a group of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "conformance/cases.h"
#include "conformance/scoreboard.h"

enum { OWN_MS = 10000, SHORT_MS = 400 };

static bool is_last(const struct rank *rank)
{
    return rank->rank == rank->size - 1;
}

/* Checks that the group has failed, reports the reason and can be destroyed, and that its parent still works.  Sets
 * *early if the rank has not been notified of the failure yet, so that its call differs from theirs. */
static enum verdict failed_group_or_early(struct rank *rank, tutti_group *group, const char *part, bool *early)
{
    int64_t start = scoreboard_now_ns();
    int status = tutti_barrier(tutti_with(.group = group));
    if (status != TUTTI_ERR_ABORTED)
        rank_fail(rank, "a call on the failed group returned %s, not ABORTED", tutti_status_string(status));
    if (early != NULL && status == TUTTI_ERR_MISMATCH)
        *early = true;
    else if (status != TUTTI_ERR_ABORTED)
        return FAILED;
    FAIL_UNLESS(scoreboard_now_ns() - start < OWN_MS / 2 * 1000000LL); /* at once, not by a timeout */
    FAIL_UNLESS(part == NULL || strstr(tutti_last_error(), part) != NULL);
    rank_meet(rank);
    FAIL_UNLESS(tutti_destroy_process_group(group) == TUTTI_OK);
    TRY(tutti_barrier(tutti_with(.group = rank->groups[WORLD])));
    return PASSED;
}

static enum verdict failed_group(struct rank *rank, tutti_group *group, const char *part)
{
    return failed_group_or_early(rank, group, part, NULL);
}

/* Checks that a call that differed from the others' returned MISMATCH on every rank. */
static enum verdict expect_mismatch(struct rank *rank, tutti_group *group, int status)
{
    enum verdict verdict = PASSED;
    if (status == TUTTI_ERR_UNSUPPORTED)
        verdict = rank_skip(rank);
    else if (status != TUTTI_ERR_MISMATCH)
        verdict =
            rank_fail(rank, "the call returned %s, not MISMATCH: %s", tutti_status_string(status), tutti_last_error());
    else if (strstr(tutti_last_error(), "rank ") == NULL)
        verdict = rank_fail(rank, "the error text names no rank: %s", tutti_last_error());
    rank_meet(rank);
    if (verdict == PASSED) return failed_group(rank, group, NULL);
    tutti_destroy_process_group(group);
    return verdict;
}

enum differs { OPERATION, COUNT, DTYPE, OP, ROOT };

static enum verdict mismatch(struct rank *rank, enum differs differs, int64_t n)
{
    tutti_group *group = NULL;
    bool odd = is_last(rank);
    float *x = calloc((size_t)n + 1, sizeof *x), *y = calloc((size_t)n + 1, sizeof *y);
    TRY(rank_own_group(rank, OWN_MS, &group));
    tutti_opts opts = {.group = group};
    tutti_tensor tensor = tutti_view(x, n + (odd && differs == COUNT));
    if (odd && differs == DTYPE) tensor.dtype = TUTTI_INT32;
    tutti_reduce_op op = odd && differs == OP ? TUTTI_MAX : TUTTI_SUM;
    int status;
    if (differs == ROOT)
        status = tutti_reduce_into(tutti_view(y, n), tensor, odd ? rank->rank : 0, op, &opts);
    else if (differs == OPERATION && odd)
        status = tutti_barrier(&opts);
    else
        status = tutti_all_reduce(tensor, op, &opts);
    if (status == TUTTI_OK) status = tutti_barrier(&opts); /* a rank that only sends is notified in its next call */
    enum verdict verdict = expect_mismatch(rank, group, status);
    if (verdict == PASSED) free(x), free(y);
    return verdict;
}

#define MISMATCH(name, what, n)                                                                                        \
    static enum verdict name(struct rank *rank)                                                                        \
    {                                                                                                                  \
        return mismatch(rank, what, n);                                                                                \
    }

MISMATCH(operation, OPERATION, 4)
MISMATCH(operation_large, OPERATION, 100000)
MISMATCH(count, COUNT, 4)
MISMATCH(count_large, COUNT, 100000)
MISMATCH(dtype, DTYPE, 4)
MISMATCH(dtype_large, DTYPE, 100000)
MISMATCH(reduce_op, OP, 4)
MISMATCH(root, ROOT, 4)
MISMATCH(root_large, ROOT, 100000)

static enum verdict splits(struct rank *rank)
{
    tutti_group *group = NULL;
    int32_t in[64] = {0}, out[64];
    int64_t in_splits[RANKS_MAX], out_splits[RANKS_MAX];
    for (int i = 0; i < rank->size; i++) in_splits[i] = out_splits[i] = 2;
    if (rank->rank == 0) in_splits[1] = 3; /* rank 1 expects 2 */
    TRY(rank_own_group(rank, OWN_MS, &group));
    tutti_opts opts = {.group = group};
    int status =
        tutti_all_to_all_single(tutti_view(out, 2 * rank->size), tutti_view(in, 2 * rank->size + (rank->rank == 0)),
                                out_splits, in_splits, &opts);
    if (status == TUTTI_OK) status = tutti_barrier(&opts);
    return expect_mismatch(rank, group, status);
}

/* ---- ranks that do not call -------------------------------------------------------------------------------------- */

enum late { COLLECTIVE, MONITORED, PER_CALL };

/* Makes a call with a timeout of ms, which the last rank does not make.  Sets *again if the others timed out, as they
 * must, but the error does not name that rank, or if that rank has not been notified after a quarter of the time. */
static enum verdict time_out(struct rank *rank, enum late what, int64_t ms, bool *again)
{
    tutti_group *group = NULL;
    float x = 1;
    char name[16];
    TRY(rank_own_group(rank, what == PER_CALL ? OWN_MS : ms, &group));
    tutti_opts opts = {.group = group, .timeout_ms = what == PER_CALL ? ms : 0};
    snprintf(name, sizeof name, "rank %d", rank->size - 1);
    enum verdict verdict = PASSED;
    int64_t start = scoreboard_now_ns();
    if (!is_last(rank)) {
        int status =
            what == MONITORED ? tutti_monitored_barrier(&opts) : tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, &opts);
        int64_t took = (scoreboard_now_ns() - start) / 1000000;
        *again = strstr(tutti_last_error(), name) == NULL;
        if (status == TUTTI_ERR_UNSUPPORTED)
            verdict = rank_skip(rank);
        else if (status != TUTTI_ERR_TIMEOUT)
            verdict = rank_fail(rank, "the call returned %s, not TIMEOUT: %s", tutti_status_string(status),
                                tutti_last_error());
        else if (*again)
            rank_fail(rank, "the error text does not name %s: %s", name, tutti_last_error());
        else if (took < ms / 2 || took > ms + OWN_MS)
            verdict = rank_fail(rank, "the call took %lld ms, but its timeout was %d ms", (long long)took, (int)ms);
    }
    rank_meet(rank);
    if (verdict != PASSED) return verdict;
    if (is_last(rank)) usleep((useconds_t)ms * 250); /* by then it has been notified, so its call returns at once */
    return failed_group_or_early(rank, group, is_last(rank) || *again ? NULL : name, is_last(rank) ? again : NULL);
}

/* Expects a timeout that names the last rank, on the second try if not on the first.  Ranks find the name by asking
 * each other which rank they wait for.  On a busy machine this may take longer than a short timeout. */
static enum verdict expect_timeout(struct rank *rank, enum late what)
{
    static const int64_t times_ms[] = {SHORT_MS, 10 * SHORT_MS};
    bool again;
    for (int i = 0; i < 2; i++) {
        again = false;
        enum verdict verdict = time_out(rank, what, times_ms[i], &again);
        if (verdict != PASSED) return verdict;
        int32_t any = again;
        TRY(tutti_all_reduce(tutti_view(&any, 1), TUTTI_MAX, tutti_with(.group = rank->groups[WORLD])));
        if (any == 0) return PASSED;
    }
    return again ? FAILED : PASSED;
}

static enum verdict timeout_collective(struct rank *rank)
{
    return expect_timeout(rank, COLLECTIVE);
}

static enum verdict timeout_monitored(struct rank *rank)
{
    return expect_timeout(rank, MONITORED);
}

static enum verdict timeout_per_call(struct rank *rank)
{
    return expect_timeout(rank, PER_CALL);
}

/* Receives a message that never arrives.  The group must stay usable. */
static enum verdict timeout_message(struct rank *rank)
{
    int32_t x = 5;
    tutti_opts opts = {.group = rank->groups[WORLD], .timeout_ms = 150, .tag = 77};
    int from = (rank->rank + 1) % rank->size;
    char name[16];
    snprintf(name, sizeof name, "rank %d", from);
    int status = tutti_recv(tutti_view(&x, 1), from, &opts);
    if (status == TUTTI_ERR_UNSUPPORTED) return rank_skip(rank);
    FAIL_UNLESS(status == TUTTI_ERR_TIMEOUT && strstr(tutti_last_error(), name) != NULL && x == 5);
    status = tutti_recv(tutti_view(&x, 1), TUTTI_ANY_SOURCE, &opts);
    if (status == TUTTI_ERR_UNSUPPORTED) return rank_skip(rank);
    FAIL_UNLESS(status == TUTTI_ERR_TIMEOUT && x == 5);
    TRY(tutti_barrier(tutti_with(.group = rank->groups[WORLD])));
    return PASSED;
}

static enum verdict aborted(struct rank *rank)
{
    tutti_group *group = NULL;
    TRY(rank_own_group(rank, OWN_MS, &group));
    rank_meet(rank);
    if (is_last(rank)) {
        usleep(50000);
        FAIL_UNLESS(tutti_abort(group, "aborted by the suite") == TUTTI_OK);
    } else {
        int64_t start = scoreboard_now_ns();
        int status = tutti_barrier(tutti_with(.group = group));
        FAIL_UNLESS(status == TUTTI_ERR_ABORTED && strstr(tutti_last_error(), "aborted by the suite") != NULL);
        FAIL_UNLESS(scoreboard_now_ns() - start < OWN_MS / 2 * 1000000LL);
    }
    return failed_group(rank, group, "aborted by the suite");
}

/* Aborts operations while they move data.  Afterwards the memory must belong to the caller again, so it is unmapped. */
static enum verdict memory_after_abort(struct rank *rank)
{
    enum { BYTES = 24 << 20, ROUNDS = 6 };
    for (int round = 0; round < ROUNDS; round++) {
        tutti_group *group = NULL;
        tutti_work *work = NULL;
        TRY(rank_own_group(rank, OWN_MS, &group));
        uint8_t *x = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        FAIL_UNLESS(x != MAP_FAILED);
        memset(x, rank->rank, BYTES);
        rank_meet(rank);
        int status = tutti_all_reduce(tutti_view(x, BYTES), TUTTI_SUM, tutti_with(.group = group, .async_op = &work));
        if (status != TUTTI_ERR_ABORTED || is_last(rank)) TRY(status); /* the abort may have arrived first */
        if (is_last(rank)) {
            tutti_work_wait(work, 1 + round % 3);
            tutti_abort(group, "aborted by the suite");
        }
        if (status == TUTTI_OK) tutti_wait(&work, TUTTI_DEFAULT_TIMEOUT); /* it may have completed before the abort */
        FAIL_UNLESS(work == NULL);
        munmap(x, BYTES);
        rank_meet(rank);
        FAIL_UNLESS(tutti_destroy_process_group(group) == TUTTI_OK);
    }
    TRY(tutti_barrier(tutti_with(.group = rank->groups[WORLD])));
    return PASSED;
}

const struct case_row mismatch_rows[] = {
    {"operation", operation, 2, {L_E_MISMATCH}, 0},
    {"operation_large", operation_large, 2, {L_E_MISMATCH}, 0},
    {"count", count, 2, {L_E_MISMATCH}, 0},
    {"count_large", count_large, 2, {L_E_MISMATCH}, 0},
    {"dtype", dtype, 2, {L_E_MISMATCH}, 0},
    {"dtype_large", dtype_large, 2, {L_E_MISMATCH}, 0},
    {"reduce_op", reduce_op, 2, {L_E_MISMATCH}, 0},
    {"root", root, 2, {L_E_MISMATCH}, 0},
    {"root_large", root_large, 2, {L_E_MISMATCH}, 0},
    {"splits", splits, 2, {L_E_MISMATCH, L_C_SPLITS_CHECKED}, 0},
    {"timeout", timeout_collective, 2, {L_E_TIMEOUT, L_I_TIMEOUTS}, 0},
    {"timeout_monitored_barrier", timeout_monitored, 2, {L_E_TIMEOUT, L_C_MONITORED}, 0},
    {"timeout_per_call", timeout_per_call, 2, {L_E_TIMEOUT, L_I_TIMEOUTS}, 0},
    {"timeout_message", timeout_message, 2, {L_E_TIMEOUT}, 0},
    {"abort", aborted, 1, {L_E_ABORT}, 0},
    {"memory_after_abort", memory_after_abort, 2, {L_E_ABORT}, 'f'},
};
const int n_mismatch_rows = sizeof mismatch_rows / sizeof *mismatch_rows;
