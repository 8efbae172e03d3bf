/* What differs where NCCL is older, on the stand-ins of tests/fakes: the version is read once a process. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "fake_ranks.h"

static size_t allocated(void)
{
    size_t (*there)(void) = NULL;
    *(void **)&there = dlsym(dlopen("libnccl.so.2", RTLD_NOW), "fake_nccl_allocated");
    return there != NULL ? there() : SIZE_MAX;
}

/* Little memory takes no more of the device than it is; much comes from NCCL. */
static int memory(tutti_group *group, int rank, int size)
{
    tutti_tensor little[4];
    (void)rank;
    (void)size;
    for (int i = 0; i < 4; i++) little[i] = on_device(group, 1000, TUTTI_FLOAT32);
    EXPECT(allocated() == 0);
    tutti_tensor much = on_device(group, 300 << 20, TUTTI_UINT8);
    EXPECT(allocated() == 512 << 20);
    EXPECT(tutti_all_reduce(little[0], TUTTI_SUM, &(tutti_opts){.group = group}) == TUTTI_OK);
    wait_stream(NULL);
    for (int i = 0; i < 4; i++) drop(group, little[i]);
    drop(group, much);
    return 0;
}

static void test_memory(void **state)
{
    (void)state;
    run_ranks("nccl", 1, memory, 20000);
}

int main(void)
{
    setenv("FAKE_NCCL_VERSION", "22506", 1);
    if (!fakes_are_here()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
