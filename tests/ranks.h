/* Ranks as threads of the test: each has its own group over one store in memory.  A rank returns 0 or the line where
 * it found something wrong (EXPECT); only the parent asserts. */
#ifndef RANKS_H
#define RANKS_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define RANKS_MOST 16

/* In a rank: leaves with the line number, and says why on stderr. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: %s; last error: %s\n", __FILE__, __LINE__, tutti_get_rank(group),         \
                    #condition, tutti_last_error());                                                                   \
            return __LINE__;                                                                                           \
        }                                                                                                              \
    } while (0)

/* What the plug-in "loop" counts, by the name of its variable; NULL: there is none. */
static inline atomic_long *loop_counter(const char *name)
{
    void *plugin = dlopen(TUTTI_BUILD_DIR "/tests/plugins/libtutti_loop.so", RTLD_NOW);
    return plugin != NULL ? dlsym(plugin, name) : NULL;
}

typedef int (*rank_fn)(tutti_group *group, int rank, int size, void *argument);

struct rank_start {
    pthread_t thread;
    tutti_store *store;
    const char *backend;
    int rank, size, result;
    rank_fn fn;
    void *argument;
    tutti_group_opts opts;
};

static void *rank_main(void *argument)
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

/* Runs fn on size ranks; fails the test unless all return 0. */
static inline void run_ranks_with(int size, rank_fn fn, void *argument, tutti_group_opts opts)
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
        assert_int_equal(pthread_create(&start[i].thread, NULL, rank_main, &start[i]), 0);
    }
    for (int i = 0; i < size; i++) pthread_join(start[i].thread, NULL);
    tutti_store_free(store);
    for (int i = 0; i < size; i++) assert_int_equal(start[i].result, 0);
}

/* A bound for hangs alone: a sanitizer on a busy machine is slow. */
enum { RANKS_HANG_MS = 120000 };

static inline void run_ranks(int size, rank_fn fn, void *argument)
{
    run_ranks_with(size, fn, argument, (tutti_group_opts){.timeout_ms = RANKS_HANG_MS});
}

/* The tests' plug-ins are found beside the built tests. */
static inline void ranks_setup(void)
{
    setenv("TUTTI_BACKEND_PATH", TUTTI_BUILD_DIR "/tests/plugins:" TUTTI_BACKENDS_DIR, 0);
}

#endif
