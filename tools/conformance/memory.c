/* Cases of memory from tutti_alloc: collectives and messages with such memory on all ranks or some, and errors. */
#include <stdlib.h>
#include <string.h>

#include "conformance/cases.h"

enum { LARGE = 300000, SMALL = 100, TURNS = 4 };

/* The memory of one rank: three tensors in one block, each at an unaligned address. */
struct work_space {
    char *block;
    bool given; /* allocated by tutti_alloc */
    float *in, *out, *all;
};

static float value(int rank, int64_t i, int turn)
{
    return (float)((rank + 1) * (turn + 1) + i % 5);
}

static int open_space(struct work_space *space, struct rank *rank, int64_t n, bool given)
{
    tutti_group *group = rank->groups[WORLD];
    int64_t aside = 4 * (rank->rank * 1021 + 3), bytes = aside + (2 + rank->size) * n * (int64_t)sizeof(float);
    void *block = NULL;
    int status = given ? tutti_alloc(group, bytes, &block) : TUTTI_OK;
    if (!given) block = malloc((size_t)bytes);
    space->block = block;
    space->given = given;
    if (status != TUTTI_OK || block == NULL) return status != TUTTI_OK ? status : TUTTI_ERR_NO_MEMORY;
    space->in = (float *)(void *)(space->block + aside);
    space->out = space->in + n;
    space->all = space->out + n;
    return TUTTI_OK;
}

static int close_space(struct work_space *space, struct rank *rank)
{
    if (space->given) return tutti_free(rank->groups[WORLD], space->block);
    free(space->block);
    return TUTTI_OK;
}

static enum verdict reduces(struct rank *rank, struct work_space *space, int64_t n, int turn)
{
    tutti_opts opts = {.group = rank->groups[WORLD]};
    float sum = 0;
    for (int64_t i = 0; i < n; i++) space->in[i] = value(rank->rank, i, turn);
    for (int r = 0; r < rank->size; r++) sum += value(r, 0, turn);
    TRY(tutti_all_reduce_into(tutti_view(space->out, n), tutti_view(space->in, n), TUTTI_SUM, &opts));
    for (int64_t i = 0; i < n; i++) FAIL_UNLESS(space->out[i] == sum + (float)(rank->size * (i % 5)));
    TRY(tutti_all_gather_into_tensor(tutti_view(space->all, n * rank->size), tutti_view(space->in, n), &opts));
    for (int64_t i = 0; i < n * rank->size; i++) FAIL_UNLESS(space->all[i] == value((int)(i / n), i % n, turn));
    TRY(tutti_all_reduce(tutti_view(space->in, n), TUTTI_SUM, &opts));
    FAIL_UNLESS(memcmp(space->in, space->out, (size_t)n * sizeof(float)) == 0);
    int root = turn % rank->size;
    for (int64_t i = 0; i < n; i++) space->out[i] = rank->rank == root ? value(root, i, turn) : -1;
    TRY(tutti_broadcast(tutti_view(space->out, n), root, &opts));
    for (int64_t i = 0; i < n; i++) FAIL_UNLESS(space->out[i] == value(root, i, turn));
    return PASSED;
}

/* Sends and receives messages around a ring of all ranks. */
static enum verdict exchanges(struct rank *rank, struct work_space *space, int64_t n, int turn)
{
    tutti_opts opts = {.group = rank->groups[WORLD], .tag = turn};
    tutti_work *works[2] = {NULL, NULL};
    int next = (rank->rank + 1) % rank->size, before = (rank->rank + rank->size - 1) % rank->size;
    if (rank->size == 1) return PASSED;
    for (int64_t i = 0; i < n; i++) space->in[i] = value(rank->rank, i, turn);
    TRY(tutti_isend(tutti_view(space->in, n), next, &opts, &works[0]));
    TRY(tutti_irecv(tutti_view(space->out, n), before, &opts, &works[1]));
    TRY(tutti_wait_all(works, 2, TUTTI_DEFAULT_TIMEOUT));
    for (int64_t i = 0; i < n; i++) FAIL_UNLESS(space->out[i] == value(before, i, turn));
    return PASSED;
}

static enum verdict use(struct rank *rank, int64_t n, bool given, int turn)
{
    struct work_space space;
    TRY(open_space(&space, rank, n, given));
    enum verdict verdict = reduces(rank, &space, n, turn);
    if (verdict == PASSED) verdict = exchanges(rank, &space, n, turn);
    TRY(close_space(&space, rank));
    return verdict;
}

static enum verdict mixes(struct rank *rank)
{
    static const int64_t sizes[] = {SMALL, LARGE};
    for (int k = 0; k < 2; k++)
        for (int turn = 0; turn < TURNS; turn++) {
            bool given = turn == 0 || (turn == 1 && rank->rank > 0) || (turn == 2 && rank->rank % 2 == 0);
            enum verdict verdict = use(rank, sizes[k], given, turn);
            if (verdict != PASSED) return verdict;
        }
    return PASSED;
}

/* Frees and allocates memory again, with other values each time.  The address is the same, or follows a block whose
 * size differs by rank. */
static enum verdict again(struct rank *rank)
{
    for (int turn = 0; turn < TURNS; turn++) {
        void *before = NULL;
        if (turn % 2) TRY(tutti_alloc(rank->groups[WORLD], 1 + 5000 * (int64_t)rank->rank, &before));
        enum verdict verdict = use(rank, LARGE, true, turn);
        TRY(tutti_free(rank->groups[WORLD], before));
        if (verdict != PASSED) return verdict;
    }
    return PASSED;
}

static enum verdict too_much(struct rank *rank)
{
    tutti_group *group = rank->groups[WORLD];
    void *memory = NULL;
    REFUSED(tutti_alloc(group, INT64_MAX, &memory), TUTTI_ERR_NO_MEMORY);
    FAIL_UNLESS(strstr(tutti_last_error(), "9223372036854775807") != NULL && memory == NULL);
    REFUSED(tutti_alloc(group, -1, &memory), TUTTI_ERR_INVALID_ARGUMENT);
    TRY(tutti_alloc(group, 0, &memory));
    FAIL_UNLESS(memory != NULL);
    TRY(tutti_free(group, memory));
    TRY(tutti_free(group, NULL));
    return use(rank, LARGE, true, 0);
}

const struct case_row memory_rows[] = {
    {"mixes", mixes, 1, {L_M_ANY}, 0},
    {"again", again, 1, {L_M_AGAIN}, 0},
    {"too_much", too_much, 1, {L_M_REFUSED}, 0},
};
const int n_memory_rows = sizeof memory_rows / sizeof *memory_rows;
