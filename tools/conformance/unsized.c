/* Cases of messages whose size, tag or sender the receiver does not know. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/input.h"

enum { OWN_MS = 20000, GUARD = 0x5a };

/* Makes a group for one case, so that no other message is pending in it.  Skips the case on all ranks if the backend
 * has no probes. */
static enum verdict begin(struct rank *rank, tutti_group **group)
{
    bool found = true;
    TRY(rank_own_group(rank, OWN_MS, group));
    int status = tutti_iprobe(TUTTI_ANY_SOURCE, tutti_with(.group = *group, .tag = TUTTI_ANY_TAG), &found, NULL);
    enum verdict verdict = PASSED;
    if (status != TUTTI_OK) verdict = rank_status(rank, __FILE__, __LINE__, "iprobe", status);
    if (verdict == PASSED && found) verdict = rank_fail(rank, "a new group has a pending message");
    rank_meet(rank); /* before any rank sends */
    return verdict;
}

static enum verdict end(struct rank *rank, tutti_group *group)
{
    TRY(tutti_barrier(tutti_with(.group = group)));
    rank_meet(rank);
    TRY(tutti_destroy_process_group(group));
    return PASSED;
}

static void fill(const struct rank *rank, int tag, int64_t bytes, uint8_t *to)
{
    input_fill_bytes(rank->seed, 0, tag & 0xff, bytes, to);
}

/* True if `memory` holds the message of this tag and nothing was written after it. */
static bool holds(const struct rank *rank, int tag, int64_t bytes, const uint8_t *memory, int64_t capacity)
{
    uint8_t *expected = malloc((size_t)bytes + 1);
    if (expected == NULL) abort();
    fill(rank, tag, bytes, expected);
    bool same = memcmp(expected, memory, (size_t)bytes) == 0;
    for (int64_t i = bytes; i < capacity; i++) same &= memory[i] == GUARD;
    free(expected);
    return same;
}

/* Sizes in bytes: at least one for each way in which a backend may send. */
static const int64_t sizes[] = {0, 4, 400, 2000, 12000, 20000, 60000, 200000, 3 << 20};
enum { SIZES = sizeof sizes / sizeof *sizes, CAPACITY = 4 << 20, TYPED = 4 };

static enum verdict send_sizes(struct rank *rank, tutti_group *group, uint8_t *memory)
{
    for (int i = 0; i < SIZES; i++) {
        fill(rank, i, sizes[i], memory);
        TRY(tutti_send(tutti_tensor_of(memory, sizes[i] / TYPED, TUTTI_FLOAT32), 1,
                       tutti_with(.group = group, .tag = i)));
    }
    return PASSED;
}

/* Receives all sizes, blocking or with irecv. */
static enum verdict recv_sizes(struct rank *rank, tutti_group *group, uint8_t *memory, bool async)
{
    for (int i = 0; i < SIZES; i++) {
        int64_t received = -1;
        int from = -1;
        tutti_work *work = NULL;
        tutti_tensor whole = tutti_tensor_of(memory, CAPACITY / TYPED, TUTTI_FLOAT32);
        tutti_opts opts = {.group = group, .tag = i, .received = &received, .source = &from};
        memset(memory, GUARD, CAPACITY);
        if (async) {
            TRY(tutti_irecv(whole, 0, &opts, &work));
            TRY(tutti_work_wait(work, OWN_MS));
            FAIL_UNLESS(tutti_work_received(work) == sizes[i] && tutti_work_tag(work) == i);
            TRY(tutti_wait(&work, OWN_MS));
        } else {
            TRY(tutti_recv(whole, 0, &opts));
        }
        FAIL_UNLESS(received == sizes[i] && from == 0);
        if (!holds(rank, i, sizes[i], memory, CAPACITY))
            return rank_fail(rank, "a message of %lld bytes, received into %d, arrived with wrong data",
                             (long long)sizes[i], CAPACITY);
    }
    return PASSED;
}

static enum verdict up_to(struct rank *rank)
{
    tutti_group *group = NULL;
    enum verdict verdict = begin(rank, &group);
    uint8_t *memory = malloc(CAPACITY);
    if (memory == NULL) abort();
    for (int round = 0; round < 2 && verdict == PASSED; round++) {
        if (rank->rank == 0) verdict = send_sizes(rank, group, memory);
        if (rank->rank == 1) verdict = recv_sizes(rank, group, memory, round == 1);
    }
    if (verdict != PASSED) return verdict; /* the memory may be in use */
    free(memory);
    return end(rank, group);
}

/* Receives a message that is larger than the tensor, or of another dtype.  Nothing may be written, and the next message
 * must arrive. */
static enum verdict too_large(struct rank *rank)
{
    static const int64_t sent[] = {5, 5, 1 << 18};
    static const tutti_dtype asked[] = {TUTTI_INT32, TUTTI_FLOAT32, TUTTI_INT32};
    enum { BYTES = 1 << 20 };
    tutti_group *group = NULL;
    enum verdict verdict = begin(rank, &group);
    uint8_t *memory = malloc(BYTES);
    if (memory == NULL) abort();
    if (verdict != PASSED) return verdict;
    for (int i = 0; i < 3; i++) {
        int64_t received = -1, capacity = asked[i] == TUTTI_INT32 ? sent[i] - 1 : sent[i];
        int32_t after = 77;
        tutti_opts plain = {.group = group, .tag = i}, open = {.group = group, .tag = i, .received = &received};
        if (rank->rank == 0) {
            memset(memory, 1, BYTES);
            int status = tutti_send(tutti_tensor_of(memory, sent[i], TUTTI_INT32), 1, &plain);
            if (status != TUTTI_ERR_MISMATCH) TRY(status);
            TRY(tutti_send(tutti_view(&after, 1), 1, &plain));
        } else if (rank->rank == 1) {
            memset(memory, GUARD, BYTES);
            REFUSED(tutti_recv(tutti_tensor_of(memory, capacity, asked[i]), 0, &open), TUTTI_ERR_MISMATCH);
            FAIL_UNLESS(received == -1 && holds(rank, 0, 0, memory, BYTES));
            after = 0;
            TRY(tutti_recv(tutti_view(&after, 1), 0, &open));
            FAIL_UNLESS(after == 77 && received == sizeof after);
        }
    }
    free(memory);
    return end(rank, group);
}

enum { TAGS = 40 };

/* Mixes receives of any tag and of one tag.  They must take each pair's messages in order, even if the messages arrive
 * first. */
static enum verdict any_tag(struct rank *rank)
{
    tutti_group *group = NULL;
    enum verdict verdict = begin(rank, &group);
    int32_t in[2 * TAGS], out[2 * TAGS];
    int tags[2 * TAGS];
    tutti_work *works[2 * TAGS] = {NULL};
    if (verdict != PASSED) return verdict;
    for (int i = 0; i < 2 * TAGS && rank->rank == 1; i++) {
        if (i == TAGS) TRY(tutti_barrier(tutti_with(.group = group))); /* the others are posted after the messages */
        bool open = i % 3 != 2;                                        /* sends have the tags 0, 1, 2, 0, 1, 2 .. */
        tutti_opts opts = {.group = group, .tag = open ? TUTTI_ANY_TAG : 2, .received_tag = &tags[i]};
        TRY(tutti_irecv(tutti_view(&in[i], 1), i % 2 == 0 ? 0 : TUTTI_ANY_SOURCE, &opts, &works[i]));
    }
    if (rank->rank != 1) TRY(tutti_barrier(tutti_with(.group = group)));
    for (int i = 0; i < 2 * TAGS && rank->rank == 0; i++) {
        out[i] = i;
        TRY(tutti_isend(tutti_view(&out[i], 1), 1, tutti_with(.group = group, .tag = i % 3), &works[i]));
    }
    TRY(tutti_wait_all(works, 2 * TAGS, OWN_MS));
    for (int i = 0; i < 2 * TAGS && rank->rank == 1; i++) FAIL_UNLESS(in[i] == i && tags[i] == i % 3);
    return end(rank, group);
}

/* Sends from each rank to rank 0, which probes for the messages. */
static enum verdict probe_all(struct rank *rank, tutti_group *group, bool blocking)
{
    bool seen[RANKS_MAX] = {false};
    for (int i = 1; i < rank->size; i++) {
        tutti_message message = {-7, -7, -7};
        tutti_opts any = {.group = group, .tag = TUTTI_ANY_TAG};
        bool found = blocking;
        if (blocking) TRY(tutti_probe(TUTTI_ANY_SOURCE, &any, &message));
        while (!found) TRY(tutti_iprobe(TUTTI_ANY_SOURCE, &any, &found, &message));
        int from = message.source;
        FAIL_UNLESS(from > 0 && from < rank->size && !seen[from]);
        FAIL_UNLESS(message.tag == 10 * from && message.bytes == sizes[from % SIZES]);
        seen[from] = true;
        TRY(tutti_iprobe(from, tutti_with(.group = group, .tag = 10 * from), &found,
                         NULL)); /* the probe has not consumed it */
        FAIL_UNLESS(found);
        uint8_t *memory = malloc((size_t)message.bytes + 1);
        if (memory == NULL) abort();
        TRY(tutti_recv(tutti_view(memory, message.bytes), from, tutti_with(.group = group, .tag = message.tag)));
        FAIL_UNLESS(holds(rank, message.tag, message.bytes, memory, message.bytes));
        free(memory);
        TRY(tutti_iprobe(from, tutti_with(.group = group, .tag = 10 * from), &found, NULL));
        FAIL_UNLESS(!found);
    }
    return PASSED;
}

static enum verdict probe(struct rank *rank)
{
    tutti_group *group = NULL;
    enum verdict verdict = begin(rank, &group);
    int64_t bytes = sizes[rank->rank % SIZES];
    uint8_t *memory = malloc((size_t)bytes + 1);
    if (memory == NULL) abort();
    fill(rank, 10 * rank->rank, bytes, memory);
    for (int round = 0; round < 2 && verdict == PASSED; round++) {
        if (rank->rank == 0)
            verdict = probe_all(rank, group, round == 0);
        else
            TRY(tutti_send(tutti_view(memory, bytes), 0, tutti_with(.group = group, .tag = 10 * rank->rank)));
        if (verdict == PASSED) TRY(tutti_barrier(tutti_with(.group = group)));
    }
    if (verdict != PASSED) return verdict;
    free(memory);
    REFUSED(tutti_probe(rank->rank, tutti_with(.group = group), NULL), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_send(tutti_view(&bytes, 1), 0, tutti_with(.group = group, .tag = TUTTI_ANY_TAG)),
            TUTTI_ERR_INVALID_ARGUMENT);
    if (rank->rank == 0)
        REFUSED(tutti_probe(1, tutti_with(.group = group, .timeout_ms = 100), NULL), TUTTI_ERR_TIMEOUT);
    return end(rank, group);
}

static enum verdict byte_strings(struct rank *rank)
{
    tutti_group *group = NULL;
    enum verdict verdict = begin(rank, &group);
    uint8_t *memory = malloc(CAPACITY);
    if (memory == NULL) abort();
    if (verdict != PASSED) return verdict;
    for (int i = 0; i < SIZES; i++) {
        tutti_bytes got = {NULL, 1};
        int from = -1, tag = -1;
        tutti_opts opts = {.group = group, .tag = TUTTI_ANY_TAG, .source = &from, .received_tag = &tag};
        fill(rank, i, sizes[i], memory);
        if (rank->rank == 0) TRY(tutti_send_bytes(memory, (size_t)sizes[i], 1, tutti_with(.group = group, .tag = i)));
        if (rank->rank != 1) continue;
        TRY(tutti_recv_bytes(&got, i % 2 == 0 ? 0 : TUTTI_ANY_SOURCE, &opts));
        FAIL_UNLESS(got.bytes == (size_t)sizes[i] && from == 0 && tag == i);
        FAIL_UNLESS(holds(rank, i, sizes[i], got.data, sizes[i]));
        tutti_bytes_free(&got, 1);
    }
    free(memory);
    return end(rank, group);
}

const struct case_row unsized_rows[] = {
    {"up_to", up_to, 2, {L_P_UP_TO}, 0},
    {"too_large", too_large, 2, {L_P_UP_TO, L_P_MISMATCH}, 0},
    {"any_tag", any_tag, 2, {L_P_ANY_TAG, L_P_ORDER}, 0},
    {"probe", probe, 2, {L_P_PROBE, L_P_ANY}, 0},
    {"bytes", byte_strings, 2, {L_P_BYTES}, 0},
};
const int n_unsized_rows = sizeof unsized_rows / sizeof *unsized_rows;
