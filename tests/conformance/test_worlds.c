/* Several worlds at once in one process, their groups after their end, and the default group.  Ranks are threads. */
#include "ranks.h"

#include <pthread.h>
#include <unistd.h>

/* The world is destroyed first.  Its groups still answer and can be destroyed. */
static int orphans(tutti_store *store, int rank, int size)
{
    tutti_group *group = NULL, *child = NULL, *outside = NULL, *more = NULL;
    int ranks[1] = {0}, x = 1;
    EXPECT(tutti_create_group("loop", store, rank, size, &(tutti_group_opts){.timeout_ms = 20000}, &group) == TUTTI_OK);
    EXPECT(tutti_split_group(0, rank, &(tutti_group_opts){.parent = group}, &child) == TUTTI_OK);
    EXPECT(tutti_new_group(ranks, 1, &(tutti_group_opts){.parent = group}, &outside) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = child)) == TUTTI_OK && x == size);
    EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    group = child;
    EXPECT(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = child)) == TUTTI_ERR_ABORTED);
    EXPECT(strstr(tutti_last_error(), "destroyed") != NULL);
    EXPECT(tutti_send(tutti_view(&x, 1), (rank + 1) % size, tutti_with(.group = child)) == TUTTI_ERR_ABORTED);
    EXPECT(tutti_new_group(ranks, 1, &(tutti_group_opts){.parent = child}, &more) == TUTTI_ERR_ABORTED);
    EXPECT(tutti_split_group(0, 0, &(tutti_group_opts){.parent = child}, &more) == TUTTI_ERR_ABORTED);
    EXPECT(tutti_coalesce_begin(child) == TUTTI_ERR_ABORTED);
    EXPECT(tutti_get_rank(child) == rank && tutti_get_world_size(child) == size);
    EXPECT(tutti_get_global_rank(child, rank) == rank && tutti_get_name(child)[0] != '\0');
    EXPECT(tutti_destroy_process_group(child) == TUTTI_OK);
    group = outside;
    EXPECT(tutti_get_rank(outside) == (rank == 0 ? 0 : -1));
    EXPECT(tutti_destroy_process_group(outside) == TUTTI_OK);
    return 0;
}

/* Makes two worlds at once, of different sizes, with the ranks reversed in the second. */
static int two_worlds(tutti_store *store, int rank, int size)
{
    tutti_store *parts[2] = {NULL};
    tutti_group *group = NULL, *worlds[2] = {NULL}, *half = NULL;
    int ranks[2] = {rank, size - 2 - rank}, x[2];
    tutti_work *work[2] = {NULL};
    for (int i = 0; i < 2; i++) {
        if (ranks[i] < 0) continue; /* the last rank is in the first world only */
        EXPECT(tutti_store_prefix(store, i == 0 ? "one" : "two", &parts[i]) == TUTTI_OK);
        EXPECT(tutti_create_group("loop", parts[i], ranks[i], size - i, &(tutti_group_opts){.timeout_ms = 20000},
                                  &worlds[i]) == TUTTI_OK);
    }
    group = worlds[0];
    EXPECT(tutti_split_group(rank % 2, 0, &(tutti_group_opts){.parent = worlds[0]}, &half) == TUTTI_OK);
    for (int round = 0; round < 100; round++) {
        for (int k = 0; k < 2; k++) {
            int i = (k + round + rank) % 2; /* each rank uses another world first */
            x[i] = ranks[i] + i * 100;
            if (worlds[i] == NULL) continue;
            EXPECT(tutti_all_reduce(tutti_view(&x[i], 1), TUTTI_SUM,
                                    tutti_with(.group = worlds[i], .async_op = &work[i])) == TUTTI_OK);
        }
        EXPECT(tutti_wait_all(work, 2, TUTTI_DEFAULT_TIMEOUT) == TUTTI_OK);
        EXPECT(x[0] == size * (size - 1) / 2);
        if (worlds[1] != NULL) EXPECT(x[1] == (size - 1) * 100 + (size - 1) * (size - 2) / 2);
    }
    EXPECT(tutti_barrier(tutti_with(.group = half)) == TUTTI_OK);
    int first = rank % 2;
    if (worlds[first] != NULL) EXPECT(tutti_destroy_process_group(worlds[first]) == TUTTI_OK);
    group = NULL;
    if (worlds[1 - first] != NULL) EXPECT(tutti_destroy_process_group(worlds[1 - first]) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(half) == TUTTI_OK);
    tutti_store_free(parts[0]);
    tutti_store_free(parts[1]);
    return 0;
}

/* A waiting rank first sleeps briefly, and polls the backend again before it sleeps for long: see tutti_backend.arm. */
static int armed_twice(tutti_store *store, int rank, int size)
{
    enum { TRIES = 10000 };
    tutti_group *group = NULL;
    atomic_long *counter = ranks_loop_counter("loop_armed_twice");
    int x = rank;
    EXPECT(counter != NULL);
    EXPECT(tutti_create_group("loop", store, rank, size, &(tutti_group_opts){.timeout_ms = 20000}, &group) == TUTTI_OK);
    long before = atomic_load(counter);
    if (rank == 0) {
        for (int i = 0; i < TRIES && atomic_load(counter) == before; i++) usleep(1000);
        EXPECT(atomic_load(counter) != before);
        EXPECT(tutti_send(tutti_view(&x, 1), 1, tutti_with(.group = group)) == TUTTI_OK);
    } else {
        EXPECT(tutti_recv(tutti_view(&x, 1), 0, tutti_with(.group = group)) == TUTTI_OK && x == 0);
    }
    EXPECT(tutti_destroy_process_group(group) == TUTTI_OK);
    return 0;
}

struct lone {
    pthread_t thread;
    tutti_store *store;
    int (*fn)(tutti_store *store, int rank, int size);
    int rank, size, result;
};

static void *lone_main(void *argument)
{
    struct lone *lone = argument;
    lone->result = lone->fn(lone->store, lone->rank, lone->size);
    return NULL;
}

/* Runs ranks that make their worlds themselves. */
static void run_lone(int size, int (*fn)(tutti_store *store, int rank, int size))
{
    struct lone lone[RANKS_MOST];
    tutti_store *store = NULL;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    for (int i = 0; i < size; i++) {
        lone[i] = (struct lone){.store = store, .fn = fn, .rank = i, .size = size};
        assert_int_equal(pthread_create(&lone[i].thread, NULL, lone_main, &lone[i]), 0);
    }
    for (int i = 0; i < size; i++) pthread_join(lone[i].thread, NULL);
    tutti_store_free(store);
    for (int i = 0; i < size; i++) assert_int_equal(lone[i].result, 0);
}

static void test_armed_twice(void **state)
{
    (void)state;
    run_lone(2, armed_twice);
}

static void test_no_default_group(void **state)
{
    (void)state;
    tutti_group *child = NULL;
    tutti_store *store = NULL, *parts[2];
    int x = 1, rank = 0;
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    assert_int_equal(tutti_store_prefix(store, "first", &parts[0]), TUTTI_OK);
    assert_int_equal(tutti_store_prefix(store, "second", &parts[1]), TUTTI_OK);
    for (int i = 0; i < 2; i++) { /* twice, because the default group can be made again */
        assert_int_equal(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, NULL), TUTTI_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(tutti_last_error(), "no default group"));
        assert_int_equal(tutti_destroy_process_group(NULL), TUTTI_ERR_INVALID_ARGUMENT);
        const tutti_init_opts opts = {.store = parts[i], .world_size = 1};
        assert_int_equal(tutti_init_process_group("loop", &opts), TUTTI_OK);
        assert_int_equal(tutti_new_group(&rank, 1, NULL, &child), TUTTI_OK);
        assert_int_equal(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = child)), TUTTI_OK);
        assert_int_equal(tutti_destroy_process_group(NULL), TUTTI_OK);
        assert_int_equal(tutti_all_reduce(tutti_view(&x, 1), TUTTI_SUM, tutti_with(.group = child)), TUTTI_ERR_ABORTED);
        assert_int_equal(tutti_destroy_process_group(child), TUTTI_OK);
        assert_int_equal(tutti_get_rank(NULL), -1);
        tutti_store_free(parts[i]);
    }
    tutti_store_free(store);
}

static void test_orphans(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++) run_lone(size, orphans);
}

static void test_two_worlds(void **state)
{
    (void)state;
    for (int size = 3; size <= 5; size++) run_lone(size, two_worlds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orphans),
        cmocka_unit_test(test_two_worlds),
        cmocka_unit_test(test_armed_twice),
        cmocka_unit_test(test_no_default_group),
    };
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
