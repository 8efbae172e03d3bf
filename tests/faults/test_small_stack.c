/* Ranks whose threads have stacks of 32 KiB, as in embedded programs and language runtimes. */
#include "procs.h"

#include <pthread.h>

enum { STACK = 32 << 10, LARGE = 70000 };

static int operate(int size)
{
    float *data = calloc(LARGE, sizeof *data), *all = calloc((size_t)size * LARGE, sizeof *all);
    EXPECT(data != NULL && all != NULL);
    EXPECT(proc_init(30000) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(data, 1), TUTTI_SUM, NULL) == TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_view(data, LARGE), TUTTI_SUM, NULL) == TUTTI_OK);
    EXPECT(tutti_reduce_scatter_tensor(tutti_view(data, LARGE), tutti_view(all, size * LARGE), TUTTI_SUM, NULL) ==
           TUTTI_OK);
    EXPECT(tutti_all_reduce(tutti_tensor_of(data, LARGE, TUTTI_BFLOAT16), TUTTI_SUM, NULL) == TUTTI_OK);
    EXPECT(tutti_all_gather_into_tensor(tutti_view(all, size * LARGE), tutti_view(data, LARGE), NULL) == TUTTI_OK);
    EXPECT(tutti_destroy_process_group(NULL) == TUTTI_OK);
    free(data);
    free(all);
    return 0;
}

struct small {
    int size, result;
};

static void *run_small(void *argument)
{
    struct small *small = argument;
    small->result = operate(small->size);
    return NULL;
}

static int rank_of_small(int rank, int size, void *argument)
{
    struct small small = {.size = size, .result = -1};
    pthread_attr_t attributes;
    pthread_t thread;
    (void)rank;
    setenv("TUTTI_SHM", argument, 1);
    EXPECT(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, STACK) == 0);
    EXPECT(pthread_create(&thread, &attributes, run_small, &small) == 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
    return small.result;
}

static void test_over_shared_memory(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_small, "1");
}

static void test_over_the_wire(void **state)
{
    (void)state;
    procs_run_ranks(3, rank_of_small, "0");
}

int main(void)
{
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) return 77; /* built without libfabric */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_over_shared_memory),
        cmocka_unit_test(test_over_the_wire),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
