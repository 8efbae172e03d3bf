#include "ranks.h"

#include <dlfcn.h>
#include <pthread.h>

atomic_long *ranks_loop_counter(const char *name)
{
    void *plugin = dlopen(TUTTI_BUILD_DIR "/tests/plugins/libtutti_loop.so", RTLD_NOW);
    return plugin != NULL ? dlsym(plugin, name) : NULL;
}

struct rank_start {
    pthread_t thread;
    tutti_store *store;
    const char *backend;
    int rank, size, result;
    rank_fn fn;
    void *argument;
    tutti_group_opts opts;
};

static void *run_rank(void *argument)
{
    struct rank_start *start = argument;
    tutti_group *group = NULL;
    if (tutti_create_group(start->backend, start->store, start->rank, start->size, &start->opts, &group) != TUTTI_OK) {
        fprintf(stderr, "rank %d: create_group: %s\n", start->rank, tutti_last_error());
        start->result = -1;
        return NULL;
    }
    start->result = start->fn(group, start->rank, start->size, start->argument);
    if (tutti_destroy_process_group(group) != TUTTI_OK) start->result = -2;
    return NULL;
}

void ranks_run_with(int size, rank_fn fn, void *argument, tutti_group_opts opts)
{
    struct rank_start start[RANKS_MOST];
    tutti_store *store = NULL;
    const char *backend = getenv("TUTTI_TEST_BACKEND");
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    for (int i = 0; i < size; i++) {
        start[i] = (struct rank_start){.store = store,
                                       .backend = backend != NULL ? backend : "loop",
                                       .rank = i,
                                       .size = size,
                                       .fn = fn,
                                       .argument = argument,
                                       .opts = opts};
        assert_int_equal(pthread_create(&start[i].thread, NULL, run_rank, &start[i]), 0);
    }
    for (int i = 0; i < size; i++) pthread_join(start[i].thread, NULL);
    tutti_store_free(store);
    for (int i = 0; i < size; i++) assert_int_equal(start[i].result, 0);
}

void ranks_run(int size, rank_fn fn, void *argument)
{
    ranks_run_with(size, fn, argument, (tutti_group_opts){.timeout_ms = RANKS_HANG_MS});
}

void ranks_setup(void)
{
    setenv("TUTTI_BACKEND_PATH", TUTTI_BUILD_DIR "/tests/plugins:" TUTTI_BACKENDS_DIR, 0);
}
