/* Cases of invalid arguments: all ranks refuse them alike, and the group stays usable. */
#include <stdio.h>
#include <string.h>

#include "conformance/cases.h"

#define INVALID(call) REFUSED(call, TUTTI_ERR_INVALID_ARGUMENT)

static enum verdict still_works(struct rank *rank)
{
    int32_t x = 1;
    TRY(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = rank->groups[WORLD])));
    FAIL_UNLESS(x == rank->size);
    return PASSED;
}

static enum verdict tensors(struct rank *rank)
{
    float x[64] = {0};
    int n = rank->size;
    tutti_opts opts = {.group = rank->groups[WORLD]};
    INVALID(tutti_all_reduce(tutti_tensor_of(NULL, 4, TUTTI_FLOAT32), TUTTI_SUM, &opts));
    INVALID(tutti_all_reduce(tutti_view(x, -1), TUTTI_SUM, &opts));
    INVALID(tutti_all_reduce(tutti_view(x, INT64_MAX), TUTTI_SUM, &opts));
    INVALID(tutti_all_reduce(tutti_tensor_of(x, 4, (tutti_dtype)0x0299), TUTTI_SUM, &opts));
    INVALID(tutti_all_reduce(tutti_on(tutti_view(x, 4), (tutti_device){77, 0}), TUTTI_SUM, &opts));
    INVALID(tutti_all_reduce(tutti_view(x, 4), (tutti_reduce_op)99, &opts));
    INVALID(tutti_all_reduce_into(tutti_view(x, 4), tutti_view(x + 8, 5), TUTTI_SUM, &opts));
    INVALID(tutti_all_reduce_into(tutti_view(x, 4), tutti_tensor_of(x + 8, 4, TUTTI_INT32), TUTTI_SUM, &opts));
    INVALID(tutti_all_gather_into_tensor(tutti_view(x, 4 * n + 1), tutti_view(x + 40, 4), &opts));
    INVALID(tutti_reduce_scatter_tensor(tutti_view(x, 4), tutti_view(x + 8, 4 * n - 1), TUTTI_SUM, &opts));
    INVALID(tutti_all_to_all_single(tutti_view(x, n), tutti_view(x + 32, 2 * n), NULL, NULL, &opts));
    if (n > 1) INVALID(tutti_all_to_all_single(tutti_view(x, n + 1), tutti_view(x + 32, n + 1), NULL, NULL, &opts));
    INVALID(tutti_broadcast(tutti_view(x, -3), 0, &opts));
    return still_works(rank);
}

static enum verdict roots(struct rank *rank)
{
    float x[64] = {0};
    int n = rank->size;
    tutti_opts opts = {.group = rank->groups[WORLD]}, by_group = {.group = rank->groups[WORLD], .group_rank = true};
    tutti_opts late = {.group = rank->groups[WORLD], .timeout_ms = -1}, tag = {.group = rank->groups[WORLD], .tag = -1};
    INVALID(tutti_broadcast(tutti_view(x, 4), n, &opts));
    INVALID(tutti_broadcast(tutti_view(x, 4), -1, &opts));
    INVALID(tutti_broadcast(tutti_view(x, 4), n, &by_group));
    INVALID(tutti_reduce(tutti_view(x, 4), -1, TUTTI_SUM, &opts));
    INVALID(tutti_gather_into_tensor(tutti_view(x, n), tutti_view(x + 40, 1), n + 7, &opts));
    INVALID(tutti_scatter_tensor(tutti_view(x + 40, 1), tutti_view(x, n), INT32_MAX, &opts));
    INVALID(tutti_send(tutti_view(x, 1), n, &opts));
    INVALID(tutti_send(tutti_view(x, 1), TUTTI_ANY_SOURCE, &opts));
    INVALID(tutti_recv(tutti_view(x, 1), -2, &opts));
    if (n > 1) INVALID(tutti_send(tutti_view(x, 1), (rank->rank + 1) % n, &tag));
    INVALID(tutti_barrier(&late));
    INVALID(tutti_monitored_barrier(&late));
    return still_works(rank);
}

static enum verdict lists(struct rank *rank)
{
    float x[128] = {0};
    int n = rank->size;
    tutti_tensor list[RANKS_MAX + 1], mixed[RANKS_MAX + 1];
    tutti_opts opts = {.group = rank->groups[WORLD]};
    bool is_root = rank->rank == 0;
    for (int i = 0; i <= n; i++) list[i] = mixed[i] = tutti_view(x + 2 * i, 2);
    mixed[n - 1].dtype = TUTTI_INT32;
    INVALID(tutti_all_gather(list, n + 1, tutti_view(x + 64, 2), &opts));
    INVALID(tutti_all_gather(NULL, n, tutti_view(x + 64, 2), &opts));
    INVALID(tutti_all_gather(list, n - 1, tutti_view(x + 64, 2), &opts));
    INVALID(tutti_all_gather(mixed, n, tutti_view(x + 64, 2), &opts));
    INVALID(tutti_all_gather(list, n, tutti_view(x + 64, 3), &opts)); /* the rank's own entry has a different size */
    INVALID(tutti_reduce_scatter(tutti_view(x + 64, 2), list, n + 1, TUTTI_SUM, &opts));
    INVALID(tutti_all_to_all(list, list, n + 1, &opts));
    INVALID(tutti_all_to_all(list, NULL, n, &opts));
    if (is_root) {
        INVALID(tutti_gather(tutti_view(x + 64, 2), NULL, 0, 0, &opts));
        INVALID(tutti_gather(tutti_view(x + 64, 2), list, n + 1, 0, &opts));
        INVALID(tutti_scatter(tutti_view(x + 64, 2), NULL, 0, 0, &opts));
    } else {
        INVALID(tutti_gather(tutti_view(x + 64, 2), list, n, 0, &opts)); /* only the root may pass a list */
        INVALID(tutti_scatter(tutti_view(x + 64, 2), list, n, 0, &opts));
    }
    return still_works(rank);
}

static enum verdict splits(struct rank *rank)
{
    float x[128] = {0};
    int n = rank->size;
    int64_t right[RANKS_MAX], wrong[RANKS_MAX];
    tutti_opts opts = {.group = rank->groups[WORLD]};
    for (int i = 0; i < n; i++) right[i] = wrong[i] = 2;
    tutti_tensor in = tutti_view(x, 2 * n), out = tutti_view(x + 64, 2 * n);
    INVALID(tutti_all_to_all_single(out, in, right, NULL, &opts));
    INVALID(tutti_all_to_all_single(out, in, NULL, right, &opts));
    wrong[0] = 3;
    INVALID(tutti_all_to_all_single(out, in, wrong, right, &opts));
    INVALID(tutti_all_to_all_single(out, in, right, wrong, &opts));
    wrong[0] = 1;
    INVALID(tutti_all_to_all_single(out, in, right, wrong, &opts));
    wrong[0] = -2;
    INVALID(tutti_all_to_all_single(out, in, wrong, wrong, &opts));
    wrong[0] = INT64_MAX;
    INVALID(tutti_all_to_all_single(out, in, right, wrong, &opts));
    return still_works(rank);
}

static enum verdict works(struct rank *rank)
{
    tutti_work *none = NULL;
    int index = 0;
    float x = 1;
    INVALID(tutti_wait(NULL, 0));
    INVALID(tutti_wait(&none, 0));
    INVALID(tutti_work_wait(NULL, 0));
    INVALID(tutti_wait_all(NULL, 2, 0));
    INVALID(tutti_wait_all(&none, -1, 0));
    INVALID(tutti_wait_any(&none, 1, 0, NULL));
    INVALID(tutti_wait_any(NULL, 1, 0, &index));
    INVALID(tutti_work_then(NULL, NULL, NULL));
    INVALID(tutti_work_fd(NULL));
    INVALID(tutti_wait_stream(NULL, NULL));
    tutti_p2p_op op = {.kind = TUTTI_BARRIER, .tensor = tutti_view(&x, 1)};
    INVALID(tutti_batch_isend_irecv(&op, 1, tutti_with(.group = rank->groups[WORLD]), &none));
    INVALID(tutti_batch_isend_irecv(NULL, 1, tutti_with(.group = rank->groups[WORLD]), &none));
    INVALID(tutti_batch_isend_irecv(&op, -1, tutti_with(.group = rank->groups[WORLD]), &none));
    return still_works(rank);
}

const struct case_row error_rows[] = {
    {"tensors", tensors, 1, {L_E_ARGUMENTS}, 0},
    {"roots", roots, 1, {L_E_ARGUMENTS, L_G_ROOT, L_I_TIMEOUTS}, 0},
    {"lists", lists, 1, {L_E_ARGUMENTS, L_C_LISTS}, 0},
    {"splits", splits, 1, {L_E_ARGUMENTS, L_C_SPLITS_CHECKED}, 0},
    {"works", works, 1, {L_E_ARGUMENTS}, 0},
};
const int n_error_rows = sizeof error_rows / sizeof *error_rows;
