/* A group of its own takes a bounded number of descriptors, and gives all of them back. */
#include "leftovers.h"
#include "procs.h"

enum {
    GROUPS = 10,
    ENGINE = 2, /* eventfds; the witness of descriptors.h is one for all groups */
    OWN = 5,    /* doorbell, the end that the peers watch, arena, segment, epoll */
    OF_PEER = 2 /* doorbell, liveness */
};

static int use(tutti_group *group, int size)
{
    float x = 1;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT((int)x == size);
    return 0;
}

static int rank_of_counted(int rank, int size, void *argument)
{
    tutti_store *store = proc_store(), *part[GROUPS + 1] = {NULL};
    tutti_group *group[GROUPS + 1] = {NULL};
    int before = 0, most = ENGINE + OWN + OF_PEER * (size - 1), wrong = 0;
    (void)rank;
    (void)argument;
    for (int i = 0; i <= GROUPS; i++) { /* the first one also loads libraries, which may keep descriptors */
        char name[32];
        snprintf(name, sizeof name, "counted-%d", i);
        EXPECT(proc_group(store, name, size, 20000, &part[i], &group[i]) == TUTTI_OK);
        wrong = wrong == 0 ? use(group[i], size) : wrong;
        if (i == 0) before = count_fds();
    }
    int taken = count_fds() - before;
    if (taken > GROUPS * most)
        fprintf(stderr, "rank %d: %d groups take %d descriptors, not %d each\n", rank, GROUPS, taken, most);
    for (int i = GROUPS; i >= 0; i--) {
        if (i == 0) EXPECT(count_fds() <= before);
        EXPECT(tutti_destroy_process_group(group[i]) == TUTTI_OK);
        tutti_store_free(part[i]);
    }
    tutti_store_free(store);
    EXPECT(taken <= GROUPS * most);
    return wrong;
}

static void test_two_ranks(void **state)
{
    (void)state;
    run_procs(2, rank_of_counted, NULL);
}

static void test_four_ranks(void **state)
{
    (void)state;
    run_procs(4, rank_of_counted, NULL);
}

int main(void)
{
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_ranks), cmocka_unit_test(test_four_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
