/* Cases that make groups, use several at once, and destroy them. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "conformance/cases.h"
#include "conformance/scoreboard.h"

static enum verdict sum_is(struct rank *rank, tutti_group *group, int expected)
{
    int32_t x = rank->rank + 1;
    TRY(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)));
    FAIL_UNLESS(x == expected);
    return PASSED;
}

static int sum_of_all(const struct rank *rank)
{
    return rank->size * (rank->size + 1) / 2;
}

/* Makes a group of all ranks except 0, in reverse order.  Rank 0 is a non-member. */
static enum verdict outside(struct rank *rank)
{
    int members[RANKS_MAX], n = 0;
    tutti_group *group = NULL;
    int32_t x = rank->rank;
    for (int i = rank->size - 1; i > 0; i--) members[n++] = i;
    TRY(tutti_new_group(members, n, &(tutti_group_opts){.parent = rank->groups[WORLD]}, &group));
    if (rank->rank == 0) {
        FAIL_UNLESS(tutti_get_rank(group) == -1 && tutti_get_world_size(group) == -1);
        FAIL_UNLESS(tutti_get_group_rank(group, 1) == -1 && tutti_get_global_rank(group, 0) == -1);
        REFUSED(tutti_barrier(tutti_with(.group = group)), TUTTI_ERR_INVALID_ARGUMENT);
    } else {
        FAIL_UNLESS(tutti_get_rank(group) == rank->size - 1 - rank->rank && tutti_get_world_size(group) == n);
        for (int i = 0; i < n; i++) {
            FAIL_UNLESS(tutti_get_global_rank(group, i) == members[i] && tutti_get_group_rank(group, members[i]) == i);
        }
        FAIL_UNLESS(tutti_get_group_rank(group, 0) == -1 && tutti_get_global_rank(group, n) == -1);
        REFUSED(tutti_broadcast(tutti_view(&x, 1), 0, tutti_with(.group = group)), TUTTI_ERR_INVALID_ARGUMENT);
        TRY(tutti_broadcast(tutti_view(&x, 1), rank->size - 1, tutti_with(.group = group)));
        FAIL_UNLESS(x == rank->size - 1);
        x = rank->rank;
        TRY(tutti_broadcast(tutti_view(&x, 1), n - 1, tutti_with(.group = group, .group_rank = true)));
        FAIL_UNLESS(x == 1);
    }
    FAIL_UNLESS(tutti_destroy_process_group(group) == TUTTI_OK);
    return sum_is(rank, rank->groups[WORLD], sum_of_all(rank));
}

static enum verdict bad_ranks(struct rank *rank)
{
    tutti_group *group = NULL;
    tutti_group_opts opts = {.parent = rank->groups[WORLD]},
                     negative = {.parent = rank->groups[WORLD], .timeout_ms = -1};
    const int beyond[] = {0, rank->size}, below[] = {-1, 0}, twice[] = {0, 0};
    REFUSED(tutti_new_group(beyond, 2, &opts, &group), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_new_group(beyond + 1, 1, &opts, &group), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_new_group(below, 1, &opts, &group), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_new_group(twice, 2, &opts, &group), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_new_group(NULL, 1, &opts, &group), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_new_group(twice, 0, &opts, &group), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_new_group(twice, 1, &opts, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_new_group(twice, 1, &negative, &group), TUTTI_ERR_INVALID_ARGUMENT);
    REFUSED(tutti_split_group(0, 0, &opts, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    FAIL_UNLESS(group == NULL);
    return sum_is(rank, rank->groups[WORLD], sum_of_all(rank));
}

static enum verdict split(struct rank *rank)
{
    tutti_group *group = NULL, *none = NULL;
    tutti_group_opts opts = {.parent = rank->groups[WORLD]};
    /* First all ranks have one color and the last rank is first.  Then rank 0 asks for no group. */
    TRY(tutti_split_group(7, -rank->rank, &opts, &group));
    FAIL_UNLESS(tutti_get_world_size(group) == rank->size && tutti_get_rank(group) == rank->size - 1 - rank->rank);
    TRY(tutti_split_group(rank->rank == 0 ? -1 : 3, 5, &opts, &none));
    FAIL_UNLESS(tutti_get_rank(none) == rank->rank - 1);
    FAIL_UNLESS(tutti_get_world_size(none) == (rank->rank == 0 ? -1 : rank->size - 1));
    enum verdict verdict = sum_is(rank, group, sum_of_all(rank));
    if (verdict == PASSED && rank->rank > 0) verdict = sum_is(rank, none, sum_of_all(rank) - 1);
    tutti_destroy_process_group(group);
    tutti_destroy_process_group(none);
    return verdict;
}

/* Uses overlapping groups, each in its own thread. */
struct user {
    struct rank rank; /* copy of the case's rank */
    tutti_group *group;
    int status, wrong;
};

static void *use(void *argument)
{
    enum { N = 2000 };
    struct user *user = argument;
    int32_t *x = &(int32_t[N]){0}[0];
    for (int round = 0; round < 20 && user->status == TUTTI_OK; round++) {
        for (int i = 0; i < N; i++) x[i] = user->rank.rank + 1;
        user->status = tutti_all_reduce(tutti_view(x, N), TUTTI_SUM, tutti_with(.group = user->group));
        for (int i = 0; i < N; i++) user->wrong += x[i] != sum_of_all(&user->rank);
    }
    return NULL;
}

static enum verdict at_once(struct rank *rank)
{
    struct user users[3] = {{.rank = *rank, .group = rank->groups[WORLD]},
                            {.rank = *rank, .group = rank->groups[REVERSED]},
                            {.rank = *rank}};
    pthread_t threads[3];
    TRY(rank_own_group(rank, rank->size * 10000, &users[2].group));
    for (int i = 0; i < 3; i++) FAIL_UNLESS(pthread_create(&threads[i], NULL, use, &users[i]) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++) TRY(users[i].status);
    for (int i = 0; i < 3; i++) FAIL_UNLESS(users[i].wrong == 0);
    FAIL_UNLESS(tutti_destroy_process_group(users[2].group) == TUTTI_OK);
    return sum_is(rank, rank->groups[REVERSED], sum_of_all(rank));
}

/* Destroys groups in another order than they were made, subgroups of subgroups too. */
static enum verdict many(struct rank *rank)
{
    enum { GROUPS_MADE = 24 };
    tutti_group *groups[GROUPS_MADE], *child = NULL;
    int all[RANKS_MAX];
    enum verdict verdict = PASSED;
    for (int i = 0; i < rank->size; i++) all[i] = i;
    for (int i = 0; i < GROUPS_MADE; i++) TRY(rank_own_group(rank, 20000, &groups[i]));
    TRY(tutti_new_group(all, rank->size, &(tutti_group_opts){.parent = groups[3]}, &child));
    for (int i = 0; i < GROUPS_MADE && verdict == PASSED; i++) {
        int at = (i * 7 + 3) % GROUPS_MADE; /* group 3 first, while its subgroup exists */
        verdict = sum_is(rank, groups[at], sum_of_all(rank));
        if (verdict == PASSED && tutti_destroy_process_group(groups[at]) != TUTTI_OK)
            verdict = rank_fail(rank, "destroying a group failed: %s", tutti_last_error());
        if (verdict == PASSED && i % 5 == 0) verdict = sum_is(rank, child, sum_of_all(rank));
    }
    if (verdict == PASSED) tutti_destroy_process_group(child);
    return verdict;
}

static enum verdict members_only(struct rank *rank)
{
    tutti_group *group = NULL;
    tutti_group_opts opts = {.parent = rank->groups[WORLD], .members_only = true};
    int pair[] = {rank->rank / 2 * 2, rank->rank / 2 * 2 + 1};
    if (pair[1] < rank->size) { /* halves a group while its size is even */
        for (int i = 0; i < 1 + rank->rank / 2; i++) {
            TRY(tutti_new_group(pair, 2, &opts, &group));
            enum verdict verdict = sum_is(rank, group, pair[0] + pair[1] + 2);
            if (verdict != PASSED) return verdict;
            FAIL_UNLESS(tutti_destroy_process_group(group) == TUTTI_OK);
        }
    }
    return sum_is(rank, rank->groups[WORLD], sum_of_all(rank));
}

const struct case_row group_rows[] = {
    {"outside", outside, 2, {L_I_OUTSIDE, L_G_NEW, L_G_RANKS, L_G_ROOT, L_G_DESTROY}, 0},
    {"bad_ranks", bad_ranks, 1, {L_G_RANGE}, 0},
    {"split", split, 1, {L_G_SPLIT}, 0},
    {"at_once", at_once, 2, {L_G_OVERLAP, L_G_DESTROY}, 0},
    {"many", many, 1, {L_G_DESTROY, L_G_NEW}, 0},
    {"members_only", members_only, 2, {L_G_MEMBERS_ONLY}, 0},
};
const int n_group_rows = sizeof group_rows / sizeof *group_rows;
