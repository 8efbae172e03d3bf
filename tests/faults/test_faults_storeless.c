/* Only making groups needs the store: ranks that have never exchanged a message can do so after it has died. */
#include "procs.h"

static int rank_of_storeless(int rank, int size, void *argument)
{
    (void)argument;
    int32_t out[8], in[8];
    setenv("TUTTI_SHM", "0", 1);
    EXPECT(proc_init(30000) == TUTTI_OK);
    proc_say_and_wait(1);
    for (int i = 0; i < size; i++) out[i] = rank * size + i;
    EXPECT(tutti_all_to_all_single(tutti_view(in, size), tutti_view(out, size), NULL, NULL, NULL) == TUTTI_OK);
    for (int i = 0; i < size; i++) EXPECT(in[i] == i * size + rank);
    return tutti_destroy_process_group(NULL);
}

static void end_the_store(struct procs *procs, void *argument)
{
    (void)argument;
    if (!procs_await(procs, 1)) return;
    tutti_store_free(procs->store);
    procs->store = NULL;
    procs_go(procs, 1);
}

static void test_first_contact_without_the_store(void **state)
{
    (void)state;
    run_procs_acting(5, rank_of_storeless, end_the_store, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_contact_without_the_store)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
