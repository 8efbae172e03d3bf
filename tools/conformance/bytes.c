/* Cases of byte strings of different lengths. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/input.h"

/* Makes rank r's string: empty on rank 1, otherwise longer with each rank, or large. */
static size_t length_of(const struct rank *rank, int of)
{
    return of == 1 ? 0 : (size_t)(of * 13 + 1) * (rank->seed & 1 ? 1 : 5000);
}

static uint8_t *string_of(const struct rank *rank, int of)
{
    uint8_t *string = malloc(length_of(rank, of) + 1);
    if (string == NULL) abort();
    input_fill_bytes(rank->seed, of, 0, (int64_t)length_of(rank, of), string);
    return string;
}

static bool holds(const struct rank *rank, const tutti_bytes *bytes, int of)
{
    uint8_t *expected = string_of(rank, of);
    bool same =
        bytes->bytes == length_of(rank, of) && (bytes->bytes == 0 || memcmp(bytes->data, expected, bytes->bytes) == 0);
    free(expected);
    return same;
}

static enum verdict gathering(struct rank *rank)
{
    tutti_opts opts = {.group = rank->groups[WORLD]};
    tutti_bytes all[RANKS_MAX];
    uint8_t *own = string_of(rank, rank->rank);
    size_t bytes = length_of(rank, rank->rank);
    int root = rank->size - 1;
    TRY(tutti_all_gather_bytes(all, rank->size, bytes > 0 ? own : NULL, bytes, &opts));
    for (int i = 0; i < rank->size; i++) FAIL_UNLESS(holds(rank, &all[i], i));
    tutti_bytes_free(all, rank->size);
    bool is_root = rank->rank == root;
    TRY(tutti_gather_bytes(is_root ? all : NULL, is_root ? rank->size : 0, own, bytes, root, &opts));
    for (int i = 0; is_root && i < rank->size; i++) FAIL_UNLESS(holds(rank, &all[i], i));
    if (is_root) tutti_bytes_free(all, rank->size);
    free(own);
    return PASSED;
}

static enum verdict spreading(struct rank *rank)
{
    tutti_opts opts = {.group = rank->groups[WORLD]};
    tutti_bytes strings[RANKS_MAX], one = {0};
    int root = rank->size / 2;
    bool is_root = rank->rank == root;
    for (int i = 0; i < rank->size; i++) strings[i] = (tutti_bytes){string_of(rank, i), length_of(rank, i)};
    TRY(tutti_scatter_bytes(&one, is_root ? strings : NULL, is_root ? rank->size : 0, root, &opts));
    FAIL_UNLESS(holds(rank, &one, rank->rank));
    tutti_bytes_free(&one, 1);
    if (is_root) one = strings[0];
    TRY(tutti_broadcast_bytes(&one, root, &opts));
    FAIL_UNLESS(holds(rank, &one, 0));
    if (!is_root) tutti_bytes_free(&one, 1);
    for (int i = 0; i < rank->size; i++) free(strings[i].data);
    return PASSED;
}

static enum verdict bad_lists(struct rank *rank)
{
    tutti_opts opts = {.group = rank->groups[WORLD]};
    tutti_bytes all[RANKS_MAX] = {{0}};
    REFUSED(tutti_all_gather_bytes(all, rank->size + 1, "x", 1, &opts), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_all_gather_bytes(all, rank->size, NULL, 1, &opts), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_gather_bytes(all, rank->size, "x", 1, rank->size, &opts), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_gather_bytes(all, rank->size - 1, "x", 1, rank->rank, &opts), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_broadcast_bytes(NULL, 0, &opts), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_scatter_bytes(NULL, NULL, 0, 0, &opts), TUTTI_ERR_INVALID_ARGUMENT);
    TRY(tutti_barrier(&opts));
    return PASSED;
}

const struct case_row bytes_rows[] = {
    {"gather_and_all_gather", gathering, 1, {L_C_BYTES}, 0},
    {"broadcast_and_scatter", spreading, 1, {L_C_BYTES}, 0},
    {"bad_lists", bad_lists, 1, {L_C_BYTES, L_E_ARGUMENTS}, 0},
};
const int n_bytes_rows = sizeof bytes_rows / sizeof *bytes_rows;
