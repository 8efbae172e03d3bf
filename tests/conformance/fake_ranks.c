#include "conformance/fake_ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

struct start {
    pthread_t thread;
    tutti_store *store;
    const char *backend;
    case_fn fn;
    tutti_group_opts opts;
    int rank, size, result;
};

static void *rank_main(void *argument)
{
    struct start *start = argument;
    tutti_group *group = NULL;
    start->result = -1;
    if (!cu_use(start->opts.device.index)) return NULL;
    if (tutti_create_group(start->backend, start->store, start->rank, start->size, &start->opts, &group) != TUTTI_OK) {
        fprintf(stderr, "rank %d: %s\n", start->rank, tutti_last_error());
        return NULL;
    }
    start->result = start->fn(group, start->rank, start->size);
    if (tutti_destroy_process_group(group) != TUTTI_OK) start->result = -2;
    return NULL;
}

/* Waits until the communicators of earlier ranks have ended, which they may do in the background.  Their end waits for
 * the work of the device, and that of the next case may wait at a gate. */
static void await_communicators(void)
{
    int (*left)(void) = NULL;
    double begin = monotonic_s();
    void *nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    if (nccl != NULL) *(void **)&left = dlsym(nccl, "fake_nccl_communicators");
    while (left != NULL && left() > 0 && monotonic_s() - begin < 10) sleep_here(&(int){1});
    if (nccl != NULL) dlclose(nccl);
}

void run_ranks(const char *backend, int size, case_fn fn, int64_t timeout_ms)
{
    struct start start[CASES_RANKS];
    tutti_store *store = NULL;
    await_communicators();
    assert_int_equal(tutti_store_memory(NULL, &store), TUTTI_OK);
    for (int i = 0; i < size; i++) {
        start[i] = (struct start){.store = store, .backend = backend, .fn = fn, .rank = i, .size = size};
        start[i].opts = (tutti_group_opts){.timeout_ms = timeout_ms, .device = {TUTTI_CUDA, i}};
        assert_int_equal(pthread_create(&start[i].thread, NULL, rank_main, &start[i]), 0);
    }
    for (int i = 0; i < size; i++) pthread_join(start[i].thread, NULL);
    tutti_store_free(store);
    for (int i = 0; i < size; i++) assert_int_equal(start[i].result, 0);
}

bool fakes_are_here(void)
{
    struct stat info;
    capture_mode = CU_CAPTURE_THREAD_LOCAL;
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    setenv("TUTTI_FAKES", TUTTI_BUILD_DIR "/tests/fakes", 1);
    if (stat(TUTTI_BUILD_DIR "/tests/fakes/libcuda.so.1", &info) == 0 && cu_load()) return true;
    printf("skipped: the plug-ins for CUDA tensors are not built here\n");
    return false;
}
