/* Groups: their ranks, and groups that are made by their members alone, split, nested and shrunk. */
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <unistd.h>

#include "group/group_id.h"
#include "group/subgroup.h"
#include "group_cases.h"
#include "state/group_state.h"

/* ---- ranks -------------------------------------------------------------------------------------------------- */

static int translation(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *odd = NULL;
    int ranks[RANKS_MOST], n = 0, seen = 0;
    for (int r = size - 1; r >= 0; r--)
        if (r != 1) ranks[n++] = r;
    EXPECT(tutti_new_group(ranks, n, &(tutti_group_opts){.parent = group, .name = "backwards"}, &odd) == TUTTI_OK);
    EXPECT(strcmp(tutti_get_name(odd), "backwards") == 0);
    for (int r = 0; r < size; r++) {
        EXPECT(tutti_get_global_rank(group, r) == r && tutti_get_group_rank(group, r) == r);
        int expected = -1;
        for (int i = 0; i < n; i++)
            if (ranks[i] == r) expected = i;
        if (rank == 1) {
            EXPECT(tutti_get_group_rank(odd, r) == -1 && tutti_get_global_rank(odd, r) == -1);
        } else {
            EXPECT(tutti_get_group_rank(odd, r) == expected);
            if (expected >= 0) EXPECT(tutti_get_global_rank(odd, expected) == r);
            seen += expected >= 0;
        }
    }
    EXPECT(rank == 1 ? tutti_get_rank(odd) == -1 : seen == n && tutti_get_rank(odd) == tutti_get_group_rank(odd, rank));
    static const int outside[] = {-1, INT_MIN, INT_MAX, 1000};
    for (int i = 0; i < 4; i++)
        EXPECT(tutti_get_group_rank(odd, outside[i]) == -1 && tutti_get_global_rank(odd, outside[i]) == -1);
    EXPECT(tutti_get_global_rank(odd, n) == -1);
    EXPECT(tutti_destroy_process_group(odd) == TUTTI_OK);
    return 0;
}

/* Uses every root and peer once as a global rank and once as a group rank.  The sender is reported in the same way. */
static int group_ranks(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *part = NULL;
    int ranks[RANKS_MOST] = {0};
    for (int r = 0; r < size; r++) ranks[r] = (size - r) % size; /* 0, size - 1, .. 1 */
    EXPECT(tutti_new_group(ranks, size, &(tutti_group_opts){.parent = group}, &part) == TUTTI_OK);
    for (int root = 0; root < size; root++)
        for (int by_group = 0; by_group < 2; by_group++) {
            int x = rank, source = -1;
            const tutti_opts *opts = tutti_with(.group = part, .group_rank = by_group != 0, .source = &source);
            int named = by_group ? tutti_get_group_rank(part, root) : root;
            EXPECT(tutti_broadcast(tutti_view(&x, 1), named, opts) == TUTTI_OK && x == root);
            x = 1;
            EXPECT(tutti_reduce(tutti_view(&x, 1), named, TUTTI_SUM, opts) == TUTTI_OK);
            EXPECT(x == (rank == root ? size : 1));
            if (rank == root) {
                for (int i = 1; i < size; i++) {
                    EXPECT(tutti_recv(tutti_view(&x, 1), TUTTI_ANY_SOURCE, opts) == TUTTI_OK);
                    EXPECT(source == (by_group ? tutti_get_group_rank(part, x) : x));
                }
            } else {
                x = rank;
                EXPECT(tutti_send(tutti_view(&x, 1), named, opts) == TUTTI_OK);
            }
            EXPECT(tutti_barrier(opts) == TUTTI_OK);
        }
    int x = 0;
    EXPECT(tutti_broadcast(tutti_view(&x, 1), size, tutti_with(.group = part, .group_rank = true)) ==
           TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    return 0;
}

/* ---- by the members alone ----------------------------------------------------------------------------------- */

/* Each rank makes a group with every other rank, in its own order, twice.  Then all groups are used at once. */
static int members_only(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *pair[RANKS_MOST][2] = {{NULL}};
    tutti_work *work[RANKS_MOST * 2] = {NULL};
    int order[RANKS_MOST], x[RANKS_MOST][2];
    const tutti_group_opts opts = {.parent = group, .members_only = true};
    group_cases_shuffle(order, size, (unsigned)rank * 77 + 5);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < size; i++) {
            int other = order[i], ranks[2] = {rank < other ? rank : other, rank < other ? other : rank};
            if (other == rank) continue;
            EXPECT(tutti_new_group(ranks, 2, &opts, &pair[other][turn]) == TUTTI_OK);
            EXPECT(tutti_get_rank(pair[other][turn]) == (rank > other));
        }
    for (int i = size - 1; i >= 0; i--)
        for (int turn = 0; turn < 2; turn++) {
            int other = order[i];
            x[other][turn] = rank * 10 + turn;
            if (other == rank) continue;
            EXPECT(tutti_all_reduce(tutti_view(&x[other][turn], 1), TUTTI_SUM,
                                    tutti_with(.group = pair[other][turn], .async_op = &work[other * 2 + turn])) ==
                   TUTTI_OK);
        }
    EXPECT(tutti_wait_all(work, size * 2, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
    for (int other = 0; other < size; other++)
        for (int turn = 0; turn < 2 && other != rank; turn++) {
            EXPECT(x[other][turn] == (rank + other) * 10 + 2 * turn);
            EXPECT(tutti_destroy_process_group(pair[other][turn]) == TUTTI_OK);
        }
    /* ranks outside the group need not know about it: rank 0 continues to the barrier */
    int rest[RANKS_MOST], n = group_cases_pick(rest, size, ((1U << size) - 1) & ~1U, 0);
    tutti_group *without = NULL;
    if (rank > 0) {
        EXPECT(tutti_new_group(rest, n, &opts, &without) == TUTTI_OK);
        EXPECT(group_cases_sums_up(without, rest, n));
        EXPECT(tutti_destroy_process_group(without) == TUTTI_OK);
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

/* ---- splits ------------------------------------------------------------------------------------------------- */

static int splits(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *part = NULL;
    const tutti_group_opts opts = {.parent = group};
    /* rank 0 takes no part; the others have one color and equal keys, so they keep their order */
    EXPECT(tutti_split_group(rank == 0 ? -5 : 7, 3, &opts, &part) == TUTTI_OK);
    EXPECT(tutti_get_rank(part) == rank - 1 && tutti_get_world_size(part) == (rank == 0 ? -1 : size - 1));
    if (rank == 0) EXPECT(tutti_barrier(tutti_with(.group = part)) == TUTTI_ERR_INVALID_ARGUMENT);
    if (rank != 0) EXPECT(tutti_barrier(tutti_with(.group = part)) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    /* no rank takes part */
    EXPECT(tutti_split_group(INT_MIN, 0, &opts, &part) == TUTTI_OK && tutti_get_rank(part) == -1);
    void *none = NULL;
    EXPECT(tutti_alloc(part, 8, &none) == TUTTI_ERR_INVALID_ARGUMENT && none == NULL);
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    /* the largest possible keys; the last rank comes first, the first one last */
    int key = rank == 0 ? INT_MAX : rank == size - 1 ? INT_MIN : 0;
    EXPECT(tutti_split_group(INT_MAX, key, &opts, &part) == TUTTI_OK);
    EXPECT(tutti_get_group_rank(part, size - 1) == 0 && tutti_get_group_rank(part, 0) == size - 1);
    for (int r = 1; r < size - 1; r++) EXPECT(tutti_get_group_rank(part, r) == r);
    /* a split of a split, in which ranks are still those of the world */
    tutti_group *half = NULL;
    EXPECT(tutti_split_group(rank % 2, 0, &(tutti_group_opts){.parent = part}, &half) == TUTTI_OK);
    for (int i = 0, last = -1; i < tutti_get_world_size(half); i++) {
        EXPECT(tutti_get_global_rank(half, i) % 2 == rank % 2);
        EXPECT(tutti_get_group_rank(part, tutti_get_global_rank(half, i)) != last);
        last = tutti_get_group_rank(part, tutti_get_global_rank(half, i));
    }
    int x = rank;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_MIN, tutti_with(.group = half)) == TUTTI_OK && x == rank % 2);
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK); /* before its subgroup */
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_MAX, tutti_with(.group = half)) == TUTTI_OK && x == rank % 2);
    EXPECT(tutti_destroy_process_group(half) == TUTTI_OK);
    return 0;
}

/* A group of one rank does everything alone. */
static int of_one(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *alone = NULL;
    EXPECT(tutti_split_group(rank, 0, &(tutti_group_opts){.parent = group}, &alone) == TUTTI_OK);
    EXPECT(tutti_get_rank(alone) == 0 && tutti_get_world_size(alone) == 1 && tutti_get_global_rank(alone, 0) == rank);
    const tutti_opts *opts = tutti_with(.group = alone);
    float a[3] = {1, 2, 3}, b[3] = {0};
    int64_t split = 3;
    tutti_tensor in = tutti_view(a, 3), out = tutti_view(b, 3);
    EXPECT(tutti_barrier(opts) == TUTTI_OK && tutti_monitored_barrier(opts) == TUTTI_OK);
    EXPECT(tutti_broadcast(in, rank, opts) == TUTTI_OK && a[2] == 3);
    EXPECT(tutti_all_reduce(in, TUTTI_AVG, opts) == TUTTI_OK && a[2] == 3);
    EXPECT(tutti_reduce_into(out, in, rank, TUTTI_MAX, opts) == TUTTI_OK && b[1] == 2);
    EXPECT(tutti_all_gather(&out, 1, in, opts) == TUTTI_OK && b[0] == 1);
    memset(b, 0, sizeof b);
    EXPECT(tutti_gather(in, &out, 1, rank, opts) == TUTTI_OK && b[2] == 3);
    memset(b, 0, sizeof b);
    EXPECT(tutti_scatter(out, &in, 1, rank, opts) == TUTTI_OK && b[2] == 3);
    memset(b, 0, sizeof b);
    EXPECT(tutti_reduce_scatter(out, &in, 1, TUTTI_SUM, opts) == TUTTI_OK && b[2] == 3);
    memset(b, 0, sizeof b);
    EXPECT(tutti_all_to_all_single(out, in, &split, &split, opts) == TUTTI_OK && b[2] == 3);
    EXPECT(tutti_send(in, rank, opts) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_destroy_process_group(alone) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    (void)size;
    return 0;
}

/* Groups of groups, each backwards and without its parent's last rank.  Parents are destroyed before their
 * subgroups. */
static int nested(tutti_group *group, int rank, int size, void *argument)
{
    (void)argument;
    tutti_group *chain[RANKS_MOST + 1] = {group};
    int ranks[RANKS_MOST], n = size, depth = 0;
    for (int r = 0; r < size; r++) ranks[r] = r;
    while (n > 1) {
        int next[RANKS_MOST];
        for (int i = 0; i < n - 1; i++) next[i] = ranks[n - 2 - i];
        bool member = tutti_get_rank(chain[depth]) >= 0;
        if (!member) break;
        EXPECT(tutti_new_group(next, --n, &(tutti_group_opts){.parent = chain[depth]}, &chain[depth + 1]) == TUTTI_OK);
        depth++;
        memcpy(ranks, next, sizeof next);
        if (tutti_get_rank(chain[depth]) >= 0) EXPECT(group_cases_sums_up(chain[depth], ranks, n));
    }
    tutti_group *last = NULL;
    if (tutti_get_rank(chain[depth]) < 0) /* a non-member cannot make groups from it */
        EXPECT(tutti_new_group(&rank, 1, &(tutti_group_opts){.parent = chain[depth]}, &last) ==
               TUTTI_ERR_INVALID_ARGUMENT);
    for (int i = 1; i <= depth; i++) {
        EXPECT(tutti_destroy_process_group(chain[i]) == TUTTI_OK);
        if (i == 1 && depth > 2 && tutti_get_rank(chain[2]) >= 0)
            EXPECT(tutti_barrier(tutti_with(.group = chain[2])) == TUTTI_OK);
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

/* The store contains a malformed choice that no rank has written. */
static int false_choice(tutti_group *group, int rank, int size, void *argument)
{
    static const char *const choices[] = {"0 0 100000", "0 0 0\n", "-1 0 0\n", "7 0 0\n", "a b\n"};
    (void)size;
    (void)argument;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        char key[64];
        tutti_group *part = NULL;
        uint64_t id = group_id_mix(group_id_mix(group->id, 1), group->n_subgroups + 3);
        snprintf(key, sizeof key, "split/%016" PRIx64 "/choices", id);
        if (rank == 0) EXPECT(tutti_store_set(group->store, key, choices[i], strlen(choices[i])) == TUTTI_OK);
        EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
        EXPECT(tutti_split_group(0, 0, &(tutti_group_opts){.parent = group}, &part) == TUTTI_ERR_STORE);
        EXPECT(strstr(tutti_last_error(), "instead of a rank's choice") != NULL && part == NULL);
    }
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    return 0;
}

/* Runs over a backend without the entry `tell`, whose ranks split through the store. */
static void run_ranks_of_plain(int size, rank_fn fn)
{
    const char *before = getenv("TUTTI_TEST_BACKEND");
    char *kept = before != NULL ? strdup(before) : NULL;
    setenv("TUTTI_TEST_BACKEND", "plain", 1);
    ranks_run(size, fn, NULL);
    if (kept != NULL)
        setenv("TUTTI_TEST_BACKEND", kept, 1);
    else
        unsetenv("TUTTI_TEST_BACKEND");
    free(kept);
}

static void test_false_choice(void **state)
{
    (void)state;
    run_ranks_of_plain(2, false_choice);
}

static void test_splits_through_the_store(void **state)
{
    (void)state;
    run_ranks_of_plain(5, splits);
}

/* Groups are made one after another over one store.  A rank that arrives late at its split is not counted for an
 * earlier group. */
static int splits_in_turns(void *argument, int rank)
{
    tutti_store *store = argument;
    for (int turn = 0; turn < 3; turn++) {
        tutti_group *group = NULL, *part = NULL;
        EXPECT(tutti_create_group("loop", store, rank, 2, &(tutti_group_opts){.timeout_ms = RANKS_HANG_MS}, &group) ==
               TUTTI_OK);
        if (turn > 0 && rank == 1) usleep(100000);
        EXPECT(tutti_split_group(turn * rank, 0, &(tutti_group_opts){.parent = group}, &part) == TUTTI_OK);
        EXPECT(tutti_get_world_size(part) == (turn == 0 ? 2 : 1));
        EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
        EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    }
    return 0;
}

static void *second_in_turns(void *store)
{
    return (void *)(intptr_t)splits_in_turns(store, 1);
}

static void test_splits_in_turns(void **state)
{
    (void)state;
    tutti_store *store = NULL;
    pthread_t second;
    void *result = NULL;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    assert_int_equal(pthread_create(&second, NULL, second_in_turns, store), 0);
    int first = splits_in_turns(store, 0);
    pthread_join(second, &result);
    tutti_store_free(store);
    assert_int_equal(first, 0);
    assert_null(result);
}

/* Many records name lost ranks that are not in this group of two. */
static int lost_by_many(tutti_group *group, int rank, int size, void *argument)
{
    tutti_group *same = NULL;
    char key[64];
    (void)argument;
    snprintf(key, sizeof key, "shrink/%016" PRIx64 "/1", group->id);
    for (int i = 0; i < 2000 && rank == 0; i++)
        EXPECT(tutti_store_append(group->store, key, "lost 7777 0\n", 12) == TUTTI_OK);
    EXPECT(tutti_barrier(tutti_with(.group = group)) == TUTTI_OK);
    EXPECT(tutti_shrink_group(group, &same) == TUTTI_OK);
    EXPECT(tutti_get_world_size(same) == size);
    EXPECT(tutti_destroy_process_group(same) == TUTTI_OK);
    return 0;
}

static void test_lost_by_many(void **state)
{
    (void)state;
    ranks_run(2, lost_by_many, NULL);
}

int main(void)
{
    static const struct group_case cases[] = {
        {"translation", translation, 2, 5}, {"group_ranks", group_ranks, 2, 4}, {"members_only", members_only, 2, 6},
        {"splits", splits, 2, 5},           {"groups_of_one", of_one, 1, 3},    {"groups_of_groups", nested, 2, 6},
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(test_false_choice),
        cmocka_unit_test(test_splits_in_turns),
        cmocka_unit_test(test_lost_by_many),
        cmocka_unit_test(test_splits_through_the_store),
    };
    return group_cases_run(cases, sizeof cases / sizeof *cases, others, sizeof others / sizeof *others);
}
