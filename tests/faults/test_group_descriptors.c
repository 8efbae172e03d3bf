/* Groups made with a store share descriptors and a thread, and end in any order. */
#include <fcntl.h>

#include "procs.h"
#include "usage.h"

enum { GROUPS = 10 };

static int use(tutti_group *group, int size)
{
    float x = 1;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = group)) == TUTTI_OK);
    EXPECT((int)x == size);
    return 0;
}

/* Destroys the first group first, with its subgroup.  The others stay usable, and another one can be made. */
static int end_all(tutti_store *store, int size, tutti_store **part, tutti_group **group)
{
    tutti_group *child = NULL;
    int wrong = 0;
    EXPECT(tutti_split_group(0, 0, &(tutti_group_opts){.parent = group[0]}, &child) == TUTTI_OK);
    for (int i = 0; i <= GROUPS; i++) {
        EXPECT(tutti_destroy_process_group(group[i]) == TUTTI_OK);
        tutti_store_free(part[i]);
        if (i == 0) EXPECT_ERROR(tutti_barrier(tutti_with(.group = child)), TUTTI_ERR_ABORTED, "destroyed");
        if (i < GROUPS) wrong = wrong == 0 ? use(group[i + 1], size) : wrong;
        if (i != GROUPS / 2) continue;
        EXPECT(proc_group(store, "late", size, 20000, &part[0], &group[0]) == TUTTI_OK);
        wrong = wrong == 0 ? use(group[0], size) : wrong;
        EXPECT(tutti_destroy_process_group(group[0]) == TUTTI_OK);
        tutti_store_free(part[0]);
    }
    EXPECT(tutti_destroy_process_group(child) == TUTTI_OK);
    return wrong;
}

static int rank_of_counted(int rank, int size, void *argument)
{
    tutti_store *store = proc_store(), *part[GROUPS + 1] = {NULL};
    tutti_group *group[GROUPS + 1] = {NULL};
    int fds = 0, threads = 0, wrong = 0;
    setenv("TUTTI_SHM", argument != NULL ? argument : "1", 1);
    for (int i = 0; i <= GROUPS && wrong == 0; i++) {
        char name[32];
        snprintf(name, sizeof name, "counted-%d", i);
        EXPECT(proc_group(store, name, size, 20000, &part[i], &group[i]) == TUTTI_OK);
        wrong = use(group[i], size);
        proc_barrier(size, i + 1); /* both ends make connections */
        if (i == 0) fds = usage_fds();
        if (i == 0) threads = usage_threads();
    }
    EXPECT(wrong == 0);
    int more_fds = usage_fds() - fds, more_threads = usage_threads() - threads;
    wrong = end_all(store, size, part, group);
    tutti_store_free(store);
    if (more_fds > 0 || more_threads > 0)
        fprintf(stderr, "rank %d: %d further groups take %d descriptors and %d threads\n", rank, GROUPS, more_fds,
                more_threads);
    EXPECT(more_fds <= 0 && more_threads == 0);
    EXPECT(usage_threads() == threads - 1); /* the shared thread */
    return wrong;
}

/* A transport's settings when it was opened are part of its identity. */
static int rank_of_settings(int rank, int size, void *argument)
{
    tutti_store *store = proc_store(), *part[2] = {NULL};
    tutti_group *group[2] = {NULL};
    (void)rank;
    (void)argument;
    EXPECT(proc_group(store, "as-is", size, 20000, &part[0], &group[0]) == TUTTI_OK);
    int threads = usage_threads();
    setenv("TUTTI_SHM", "0", 1);
    EXPECT(proc_group(store, "wire", size, 20000, &part[1], &group[1]) == TUTTI_OK);
    EXPECT(usage_threads() > threads);
    int wrong = use(group[0], size);
    wrong = wrong == 0 ? use(group[1], size) : wrong;
    for (int i = 0; i < 2; i++) {
        EXPECT(tutti_destroy_process_group(group[i]) == TUTTI_OK);
        tutti_store_free(part[i]);
    }
    tutti_store_free(store);
    return wrong;
}

/* The program closes a stream, then makes a subgroup with another backend, which opens descriptors. */
static int rank_of_streams(int rank, int size, void *argument)
{
    tutti_store *store = proc_store();
    tutti_group *group = NULL, *part = NULL;
    (void)argument;
    setenv("TUTTI_BACKEND_PATH", TUTTI_BUILD_DIR "/tests/plugins:" TUTTI_BACKENDS_DIR, 1);
    EXPECT(tutti_create_group("loop", store, rank, size, NULL, &group) == TUTTI_OK);
    close(STDIN_FILENO);
    EXPECT(tutti_new_group(&rank, 1, &(tutti_group_opts){.parent = group, .backend = "tcp"}, &part) == TUTTI_OK);
    EXPECT(fcntl(STDIN_FILENO, F_GETFD) >= 0);
    EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    tutti_store_free(store);
    return 0;
}

static void test_two_ranks(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_counted, NULL);
}

static void test_four_ranks(void **state)
{
    (void)state;
    procs_run_ranks(4, rank_of_counted, NULL);
}

static void test_over_the_network(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_counted, "0");
    procs_run_ranks(4, rank_of_counted, "0");
}

static void test_closed_stream(void **state)
{
    (void)state;
    procs_run_ranks(1, rank_of_streams, NULL);
}

static void test_other_settings(void **state)
{
    (void)state;
    procs_run_ranks(2, rank_of_settings, NULL);
}

int main(void)
{
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_ranks), cmocka_unit_test(test_four_ranks),
                                       cmocka_unit_test(test_over_the_network), cmocka_unit_test(test_other_settings),
                                       cmocka_unit_test(test_closed_stream)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
