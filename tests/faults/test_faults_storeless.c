/* A world does not need the store once it is made.  After the store has died, ranks that have never exchanged a message
 * can do so, and new_group works. split_group, which gathers the choices there, returns STORE. */
#include "procs.h"

enum { RANKS = 5 };

static int rank_of_storeless(int rank, int size, void *argument)
{
    (void)argument;
    int32_t out[8], in[8];
    setenv("TUTTI_SHM", "0", 1);
    EXPECT(proc_init(30000) == TUTTI_OK);
    proc_wait_for_go(1);
    for (int i = 0; i < size; i++) out[i] = rank * size + i;
    EXPECT(tutti_all_to_all_single(tutti_view(in, size), tutti_view(out, size), NULL, NULL, NULL) == TUTTI_OK);
    for (int i = 0; i < size; i++) EXPECT(in[i] == i * size + rank);
    return tutti_destroy_process_group(NULL);
}

static void end_the_store(struct procs *procs, void *argument)
{
    (void)argument;
    if (!procs_wait_for_step(procs, 1)) return;
    tutti_store_free(procs->store);
    procs->store = NULL;
    procs_release(procs, 1);
}

static void test_first_contact_without_the_store(void **state)
{
    (void)state;
    procs_run_with(RANKS, rank_of_storeless, end_the_store, NULL);
}

/* ---- groups ------------------------------------------------------------------------------------------------- */

static int use_and_destroy(tutti_group *group)
{
    int32_t x = 1;
    if (tutti_get_rank(group) >= 0) {
        EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
        EXPECT(x == tutti_get_world_size(group));
    }
    return tutti_destroy_process_group(group);
}

/* Makes groups.  The very first operation is one of a group. argument: TUTTI_SHM */
static int rank_that_makes_groups(int rank, int size, void *argument)
{
    tutti_group *group = NULL;
    tutti_group_opts members = {.members_only = true};
    setenv("TUTTI_SHM", argument, 1);
    EXPECT(proc_init(30000) == TUTTI_OK);
    proc_wait_for_go(1);
    int64_t begin = monotonic_ns();
    EXPECT(tutti_new_group((int[]){0, 2, 4}, 3, NULL, &group) == TUTTI_OK);
    EXPECT(use_and_destroy(group) == TUTTI_OK);
    EXPECT(tutti_new_group((int[]){4, 3, 2, 1, 0}, size, NULL, &group) == TUTTI_OK);
    EXPECT(use_and_destroy(group) == TUTTI_OK);
    if (rank < 2) {
        EXPECT(tutti_new_group((int[]){0, 1}, 2, &members, &group) == TUTTI_OK);
        EXPECT(use_and_destroy(group) == TUTTI_OK);
    }
    EXPECT(tutti_split_group(rank % 2, rank, NULL, &group) == TUTTI_OK);
    EXPECT(use_and_destroy(group) == TUTTI_OK);
    EXPECT_WITHIN(begin, 0, PROCS_SOON_S);
    return tutti_destroy_process_group(NULL);
}

static void test_groups_without_the_store(void **state)
{
    (void)state;
    procs_run_with(RANKS, rank_that_makes_groups, end_the_store, "0");
    procs_run_with(RANKS, rank_that_makes_groups, end_the_store, "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_contact_without_the_store),
        cmocka_unit_test(test_groups_without_the_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
