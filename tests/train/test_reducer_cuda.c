/* The reducer with CUDA gradients, on the stand-ins of tests/fakes: reduced in place, in the order of a stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train/reducer.h>
#include <unistd.h>

#include <cmocka.h>

#include "conformance/fake_ranks.h"

enum { LAYERS = 4, ITERATIONS = 3 };

static const int64_t numel[LAYERS] = {300, 1000, 1, 64};

static double element(int64_t i, const int *what)
{
    return (double)((i + what[0] * 3 + what[1]) % 16);
}

/* Returns the average of all ranks.  what: the size and the iteration */
static double average(int64_t i, const int *what)
{
    double sum = 0;
    for (int r = 0; r < what[0]; r++) sum += element(i, (int[]){r, what[1]});
    return sum / what[0];
}

static int case_reducer(tutti_group *group, int rank, int size)
{
    tutti_parameter list[LAYERS];
    tutti_reducer *reducer = NULL;
    cu_stream stream = new_stream();
    tutti_reducer_opts opts = {.group = group, .stream = stream, .bucket_bytes = 3000, .first_bucket_bytes = 100};
    for (int i = 0; i < LAYERS; i++) {
        list[i] = (tutti_parameter){NULL, on_device(group, numel[i], TUTTI_FLOAT32),
                                    on_device(group, numel[i], TUTTI_FLOAT32)};
        fill(list[i].value, element, (int[]){rank, i});
    }
    opts.compress = TUTTI_BFLOAT16;
    EXPECT(tutti_reducer_create(list, LAYERS, &opts, &reducer) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "'parameter 0' is on CUDA, where compress is not available") != NULL);
    opts.compress = (tutti_dtype)0;
    EXPECT(tutti_reducer_create(list, LAYERS, &opts, &reducer) == TUTTI_OK);
    wait_stream(stream);
    for (int i = 0; i < LAYERS; i++) EXPECT(holds(list[i].value, element, (int[]){0, i}));
    for (int k = 0; k < ITERATIONS; k++) {
        for (int i = 0; i < LAYERS; i++) fill(list[i].gradient, element, (int[]){rank, k});
        for (int i = 0; i < LAYERS; i++) EXPECT(tutti_reducer_ready(reducer, (i + rank) % LAYERS) == TUTTI_OK);
        EXPECT(tutti_reducer_wait(reducer) == TUTTI_OK);
        wait_stream(stream); /* the results are in its order */
        for (int i = 0; i < LAYERS; i++) EXPECT(holds(list[i].gradient, average, (int[]){size, k}));
    }
    for (int i = 0; i < LAYERS - (rank == size - 1); i++) EXPECT(tutti_reducer_ready(reducer, i) == TUTTI_OK);
    EXPECT(tutti_reducer_wait(reducer) == TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "not reported in this iteration: 'parameter 3'; report") != NULL);
    tutti_reducer_destroy(reducer);
    for (int i = 0; i < LAYERS; i++) {
        drop(group, list[i].value);
        drop(group, list[i].gradient);
    }
    cu.stream_free(stream);
    return 0;
}

/* A bucket holds gradients of one device. */
static int case_devices(tutti_group *group, int rank, int size)
{
    enum { N = 65 };
    tutti_parameter list[N];
    tutti_tensor gradient = on_device(group, 1, TUTTI_FLOAT32);
    tutti_reducer *reducer = NULL;
    (void)rank, (void)size;
    for (int i = 0; i < N; i++)
        list[i] = (tutti_parameter){NULL, {0}, tutti_on(gradient, (tutti_device){TUTTI_CUDA, i})};
    EXPECT(tutti_reducer_create(list, N, &(tutti_reducer_opts){.group = group}, &reducer) ==
           TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(strstr(tutti_last_error(), "'parameter 64' needs a bucket of its own; a reducer takes 64 kinds") != NULL);
    drop(group, gradient);
    return 0;
}

/* Rank 1 has a tensor on a device of another rank.  The others do not wait for it. */
static int case_wrong_device(tutti_group *group, int rank, int size, bool is_value)
{
    tutti_tensor value = on_device(group, 8, TUTTI_FLOAT32), gradient = on_device(group, 8, TUTTI_FLOAT32);
    tutti_tensor wrong = tutti_on(is_value ? value : gradient, (tutti_device){TUTTI_CUDA, 7});
    tutti_parameter one = {"one", value, gradient};
    tutti_reducer *reducer = NULL;
    (void)size;
    if (rank == 1) *(is_value ? &one.value : &one.gradient) = wrong;
    int status = tutti_reducer_create(&one, 1, &(tutti_reducer_opts){.group = group}, &reducer);
    if (!is_value) {
        EXPECT(status == TUTTI_OK);
        tutti_reducer_ready(reducer, 0);
        status = tutti_reducer_wait(reducer);
    }
    EXPECT(status == (rank == 1 ? TUTTI_ERR_INVALID_ARGUMENT : TUTTI_ERR_ABORTED));
    EXPECT(strstr(tutti_last_error(), "cuda:7") != NULL);
    tutti_reducer_destroy(reducer);
    drop(group, value);
    drop(group, gradient);
    return 0;
}

static int case_wrong_value(tutti_group *group, int rank, int size)
{
    return case_wrong_device(group, rank, size, true);
}

static int case_wrong_gradient(tutti_group *group, int rank, int size)
{
    return case_wrong_device(group, rank, size, false);
}

static atomic_bool is_destroyed;

/* Rank 0 destroys a reducer in the middle of an iteration.  It does not wait for the other ranks. */
static int case_destroy(tutti_group *group, int rank, int size)
{
    tutti_tensor gradient = on_device(group, 8, TUTTI_FLOAT32);
    tutti_parameter one = {"one", {0}, gradient};
    tutti_reducer *reducer = NULL;
    (void)size;
    EXPECT(tutti_reducer_create(&one, 1, &(tutti_reducer_opts){.group = group}, &reducer) == TUTTI_OK);
    if (rank == 0) EXPECT(tutti_reducer_ready(reducer, 0) == TUTTI_OK);
    for (int ms = 0; rank > 0 && !is_destroyed && ms < 20000; ms++) usleep(1000);
    tutti_reducer_destroy(reducer);
    EXPECT(rank == 0 || is_destroyed);
    is_destroyed = true;
    drop(group, gradient);
    return 0;
}

static void test_failures(void **state)
{
    (void)state;
    run_ranks("nccl", 2, case_wrong_value, 30000);
    run_ranks("nccl", 2, case_wrong_gradient, 30000);
    run_ranks("nccl", 2, case_destroy, 30000);
}

static void test_nccl(void **state)
{
    (void)state;
    run_ranks("nccl", 1, case_devices, 30000);
    for (int size = 1; size <= 2; size++) run_ranks("nccl", size, case_reducer, 30000);
}

static void test_staged(void **state)
{
    (void)state;
    run_ranks("cuda:tcp", 2, case_reducer, 30000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nccl), cmocka_unit_test(test_staged),
                                       cmocka_unit_test(test_failures)};
    if (!fakes_are_here()) return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
