/* Cases of point-to-point messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/input.h"
#include "conformance/scoreboard.h"

enum { MANY = 1000, WAIT = 20000 };

static tutti_group *world(struct rank *rank)
{
    return rank->groups[WORLD];
}

static int32_t word(int from, int i)
{
    return from * 1000003 + i * 7 + 1;
}

static enum verdict calls(struct rank *rank)
{
    tutti_group *group = world(rank);
    int32_t out = word(rank->rank, 1), in = 0;
    tutti_work *work = NULL;
    if (rank->rank == 0) {
        TRY(tutti_send(tutti_view(&out, 1), 1, tutti_with(.group = group)));
        TRY(tutti_irecv(tutti_view(&in, 1), 1, tutti_with(.group = group), &work));
        TRY(tutti_wait(&work, WAIT));
        FAIL_UNLESS(in == word(1, 1));
    } else if (rank->rank == 1) {
        TRY(tutti_recv(tutti_view(&in, 1), 0, tutti_with(.group = group)));
        TRY(tutti_isend(tutti_view(&out, 1), 0, tutti_with(.group = group), &work));
        TRY(tutti_wait(&work, WAIT));
        FAIL_UNLESS(in == word(0, 1));
    }
    FAIL_UNLESS(out == word(rank->rank, 1) && work == NULL);
    return PASSED;
}

/* Receives tags in another order than they were sent. */
static enum verdict tags(struct rank *rank)
{
    static const int sent[] = {3, 0, 2147483647, 1, 3}, asked[] = {1, 3, 2147483647, 3, 0};
    static const int expected[] = {3, 0, 2, 4, 1}; /* the ranks that sent */
    tutti_work *works[5] = {NULL};
    int32_t out[5], in = 0;
    if (rank->rank == 0) {
        for (int i = 0; i < 5; i++) {
            out[i] = word(0, i);
            TRY(tutti_isend(tutti_view(&out[i], 1), 1, tutti_with(.group = world(rank), .tag = sent[i]), &works[i]));
        }
        TRY(tutti_wait_all(works, 5, WAIT));
    } else if (rank->rank == 1) {
        for (int i = 0; i < 5; i++) {
            TRY(tutti_recv(tutti_view(&in, 1), 0, tutti_with(.group = world(rank), .tag = asked[i])));
            FAIL_UNLESS(in == word(0, expected[i]));
        }
    }
    return PASSED;
}

static enum verdict any_source(struct rank *rank)
{
    tutti_group *group = rank->groups[REVERSED]; /* here group rank and global rank differ */
    bool seen[RANKS_MAX] = {false};
    int32_t value = word(rank->rank, 9);
    if (rank->rank != 0) {
        TRY(tutti_send(tutti_view(&value, 1), 0, tutti_with(.group = group, .tag = 5)));
        return PASSED;
    }
    for (int i = 1; i < rank->size; i++) {
        int from = -7;
        tutti_work *work = NULL;
        bool by_group = i % 2;
        tutti_opts opts = {.group = group, .tag = 5, .source = &from, .group_rank = by_group};
        TRY(tutti_irecv(tutti_view(&value, 1), TUTTI_ANY_SOURCE, &opts, &work));
        TRY(tutti_work_wait(work, WAIT));
        FAIL_UNLESS(tutti_work_source(work) == from);
        TRY(tutti_wait(&work, WAIT));
        if (by_group) from = tutti_get_global_rank(group, from);
        FAIL_UNLESS(from > 0 && from < rank->size && !seen[from] && value == word(from, 9));
        seen[from] = true;
    }
    return PASSED;
}

/* Has many messages pending at once.  Those of one pair and tag must arrive in order. */
static enum verdict outstanding(struct rank *rank)
{
    tutti_group *group = world(rank);
    int right = (rank->rank + 1) % rank->size, left = (rank->rank + rank->size - 1) % rank->size;
    int32_t *out = malloc(sizeof *out * MANY), *in = malloc(sizeof *in * MANY);
    tutti_work **works = calloc(2 * MANY, sizeof(tutti_work *));
    enum verdict verdict = PASSED;
    int status = TUTTI_OK;
    for (int i = 0; i < MANY && status == TUTTI_OK; i++) {
        tutti_opts opts = {.group = group, .tag = i % 4};
        out[i] = word(rank->rank, i);
        in[i] = -1;
        status = tutti_isend(tutti_view(&out[i], 1), right, &opts, &works[i]);
        if (status == TUTTI_OK) status = tutti_irecv(tutti_view(&in[i], 1), left, &opts, &works[MANY + i]);
    }
    if (status == TUTTI_OK) status = tutti_wait_all(works, 2 * MANY, WAIT);
    if (status != TUTTI_OK) verdict = rank_status(rank, __FILE__, __LINE__, "1000 sends and receives", status);
    for (int i = 0; i < MANY && verdict == PASSED; i++)
        if (in[i] != word(left, i)) verdict = rank_fail(rank, "message %d of %d is out of order", i, MANY);
    if (verdict == PASSED) free(out), free(in); /* after a failure they may still be in use */
    free(works);
    return verdict;
}

static enum verdict batch(struct rank *rank)
{
    int right = (rank->rank + 1) % rank->size, left = (rank->rank + rank->size - 1) % rank->size, from = -1;
    int32_t out[3], in[3] = {0};
    tutti_p2p_op ops[6];
    tutti_work *works[6] = {NULL};
    for (int i = 0; i < 3; i++) {
        out[i] = word(rank->rank, i);
        ops[i] = (tutti_p2p_op){.kind = TUTTI_SEND, .tensor = tutti_view(&out[i], 1), .peer = right, .tag = i};
        ops[5 - i] = (tutti_p2p_op){.kind = TUTTI_RECV,
                                    .tensor = tutti_view(&in[i], 1),
                                    .peer = left,
                                    .tag = i,
                                    .source = i == 0 ? &from : NULL};
    }
    TRY(tutti_batch_isend_irecv(ops, 6, tutti_with(.group = world(rank)), works));
    TRY(tutti_wait_all(works, 6, WAIT));
    for (int i = 0; i < 3; i++) FAIL_UNLESS(in[i] == word(left, i));
    FAIL_UNLESS(from == left);
    ops[1].peer = rank->rank; /* one operation is invalid, so none may start */
    REFUSED(tutti_batch_isend_irecv(ops, 6, tutti_with(.group = world(rank)), works), TUTTI_ERR_INVALID_ARGUMENT);
    TRY(tutti_barrier(tutti_with(.group = world(rank))));
    return PASSED;
}

/* Sends before it receives, on both ranks. */
static int exchange(struct rank *rank, int peer, uint8_t *out, uint8_t *in, int64_t bytes)
{
    tutti_opts opts = {.group = world(rank), .tag = 1};
    tutti_work *work = NULL;
    int status = tutti_isend(tutti_view(out, bytes), peer, &opts, &work);
    if (status == TUTTI_OK) status = tutti_recv(tutti_view(in, bytes), peer, &opts);
    int ended = work != NULL ? tutti_wait(&work, WAIT) : TUTTI_OK;
    return status != TUTTI_OK ? status : ended;
}

static enum verdict both_first(struct rank *rank, int64_t most)
{
    int peer = rank->rank ^ 1;
    if (peer >= rank->size) return APART;
    uint8_t *out = malloc((size_t)most + 1), *in = malloc((size_t)most + 1), *expected = malloc((size_t)most + 1);
    enum verdict verdict =
        out && in && expected ? PASSED : rank_fail(rank, "no memory for %lld bytes", (long long)most);
    for (int64_t bytes = 0; bytes <= most && verdict == PASSED; bytes = bytes * 3 + bytes / 4 + 1) {
        input_fill_bytes(rank->seed, rank->rank, (int)(bytes & 0xff), bytes, out);
        input_fill_bytes(rank->seed, peer, (int)(bytes & 0xff), bytes, expected);
        memset(in, 0x5a, (size_t)bytes + 1);
        int status = exchange(rank, peer, out, in, bytes);
        if (status != TUTTI_OK)
            verdict = rank_status(rank, __FILE__, __LINE__, "both send first", status);
        else if (memcmp(in, expected, (size_t)bytes) != 0 || in[bytes] != 0x5a)
            verdict = rank_fail(rank, "a message of %lld bytes arrived with wrong data", (long long)bytes);
    }
    free(out);
    free(in);
    free(expected);
    return verdict;
}

static enum verdict both_first_small(struct rank *rank)
{
    return both_first(rank, 3 << 20);
}

static enum verdict both_first_large(struct rank *rank)
{
    return both_first(rank, 64 << 20);
}

static enum verdict self(struct rank *rank)
{
    int32_t x = 1;
    tutti_work *work = NULL;
    tutti_opts opts = {.group = world(rank)};
    REFUSED(tutti_send(tutti_view(&x, 1), rank->rank, &opts), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_recv(tutti_view(&x, 1), rank->rank, &opts), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_isend(tutti_view(&x, 1), rank->rank, &opts, &work), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_irecv(tutti_view(&x, 1), rank->rank, &opts, &work), TUTTI_ERR_INVALID_ARGUMENT);
    FAIL_UNLESS(work == NULL && x == 1);
    TRY(tutti_barrier(&opts));
    return PASSED;
}

/* Receives another size or dtype than was sent, in sizes for eager messages and for rendezvous.  A later message must
 * still arrive. */
static enum verdict wrong_size(struct rank *rank, int64_t sent, int64_t asked, tutti_dtype dtype)
{
    int64_t capacity = (sent > asked ? sent : asked) * 4;
    int32_t after = 77;
    tutti_opts opts = {.group = world(rank)};
    uint8_t *memory = malloc((size_t)capacity);
    enum verdict verdict = PASSED;
    memset(memory, rank->rank == 0 ? 1 : 0x5a, (size_t)capacity);
    if (rank->rank == 0) {
        int status = tutti_send(tutti_tensor_of(memory, sent, TUTTI_INT32), 1, &opts);
        if (status != TUTTI_OK && status != TUTTI_ERR_MISMATCH)
            verdict = rank_status(rank, __FILE__, __LINE__, "send", status);
        if (verdict == PASSED && tutti_send(tutti_view(&after, 1), 1, &opts) != TUTTI_OK)
            verdict = rank_fail(rank, "sending the next message failed: %s", tutti_last_error());
    } else if (rank->rank == 1) {
        int status = tutti_recv(tutti_tensor_of(memory, asked, dtype), 0, &opts);
        if (status == TUTTI_ERR_UNSUPPORTED)
            verdict = rank_skip(rank);
        else if (status != TUTTI_ERR_MISMATCH)
            verdict = rank_fail(rank, "sent %lld, received into %lld: %s", (long long)sent, (long long)asked,
                                tutti_status_string(status));
        for (int64_t i = 0; i < capacity && verdict == PASSED; i++)
            if (memory[i] != 0x5a)
                verdict = rank_fail(rank, "sent %lld, received into %lld: byte %lld was written", (long long)sent,
                                    (long long)asked, (long long)i);
        after = 0;
        if (verdict == PASSED && (tutti_recv(tutti_view(&after, 1), 0, &opts) != TUTTI_OK || after != 77))
            verdict = rank_fail(rank, "the next message did not arrive or has wrong data: %s", tutti_last_error());
    }
    free(memory);
    return verdict;
}

static enum verdict mismatched(struct rank *rank)
{
    enum verdict verdict = wrong_size(rank, 4, 3, TUTTI_INT32);
    if (verdict == PASSED) verdict = wrong_size(rank, 3, 4, TUTTI_INT32);
    if (verdict == PASSED) verdict = wrong_size(rank, 4, 4, TUTTI_FLOAT32);
    if (verdict == PASSED) verdict = wrong_size(rank, 1 << 20, (1 << 20) - 1, TUTTI_INT32);
    if (verdict == PASSED) verdict = wrong_size(rank, 1 << 19, 1 << 20, TUTTI_INT32);
    return verdict;
}

static enum verdict among_collectives(struct rank *rank)
{
    enum { ROUNDS = 30 };
    tutti_group *group = world(rank);
    int right = (rank->rank + 1) % rank->size, left = (rank->rank + rank->size - 1) % rank->size;
    int32_t in[ROUNDS], out[ROUNDS], sum[ROUNDS];
    tutti_work *works[3 * ROUNDS] = {NULL};
    for (int i = 0; i < ROUNDS; i++) {
        out[i] = word(rank->rank, i);
        sum[i] = rank->rank + i;
        TRY(tutti_irecv(tutti_view(&in[i], 1), left, tutti_with(.group = group), &works[i]));
        TRY(tutti_all_reduce(tutti_view(&sum[i], 1), TUTTI_SUM,
                             tutti_with(.group = group, .async_op = &works[ROUNDS + i])));
        if (i % 5 == 0) TRY(tutti_barrier(tutti_with(.group = group))); /* some receives are posted before their send */
    }
    for (int i = 0; i < ROUNDS; i++)
        TRY(tutti_isend(tutti_view(&out[i], 1), right, tutti_with(.group = group), &works[2 * ROUNDS + i]));
    TRY(tutti_wait_all(works, 3 * ROUNDS, WAIT));
    for (int i = 0; i < ROUNDS; i++)
        FAIL_UNLESS(in[i] == word(left, i) && sum[i] == rank->size * (rank->size - 1) / 2 + i * rank->size);
    return PASSED;
}

const struct case_row message_rows[] = {
    {"calls", calls, 2, {L_P_CALLS}, 0},
    {"tags", tags, 2, {L_P_TAGS, L_P_ORDER}, 0},
    {"any_source", any_source, 2, {L_P_ANY, L_G_RANKS}, 0},
    {"1000_outstanding", outstanding, 2, {L_P_ORDER, L_P_TAGS}, 0},
    {"batch", batch, 2, {L_P_CALLS}, 0},
    {"both_first", both_first_small, 2, {L_P_BOTH}, 0},
    {"both_first_64MiB", both_first_large, 2, {L_P_BOTH}, 'f'},
    {"self", self, 1, {L_P_SELF}, 0},
    {"mismatch", mismatched, 2, {L_P_MISMATCH}, 0},
    {"among_collectives", among_collectives, 2, {L_W_MESSAGES}, 0},
};
const int n_message_rows = sizeof message_rows / sizeof *message_rows;
