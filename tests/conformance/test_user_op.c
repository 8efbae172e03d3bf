/* Reductions by the program's own ops: every form on 1 to 9 ranks over the tests' backend, and on 5 processes over
 * shared memory and over a network; then ops that differ between ranks, and invalid calls. */
#include "ranks.h"
#include "unit/refusal.h"

#include <stdint.h>
#include <unistd.h>

#include "user_op_cases.h"

enum { PROCESSES = 5 };

static int over_threads(tutti_group *group, int rank, int size, void *argument)
{
    (void)rank, (void)size, (void)argument;
    return user_op_cases(group);
}

static void test_threads(void **state)
{
    (void)state;
    for (int size = 1; size <= 9; size++) ranks_run(size, over_threads, NULL);
}

static int run_as_process(int rank, void *argument)
{
    if (argument != NULL) setenv("TUTTI_SHM", "0", 1);
    if (tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = RANKS_HANG_MS}) != TUTTI_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, tutti_last_error());
        return 1;
    }
    int line = user_op_cases(NULL);
    if (line != 0) return 1;
    return tutti_destroy_process_group(NULL) == TUTTI_OK ? 0 : 1;
}

/* First, before any thread is started. */
static void test_processes(void **state)
{
    (void)state;
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) skip(); /* built without libfabric */
    if (tutti_spawn(run_as_process, NULL, PROCESSES) != TUTTI_OK) fail_msg("%s", tutti_last_error());
    if (tutti_spawn(run_as_process, (void *)1, PROCESSES) != TUTTI_OK) fail_msg("%s", tutti_last_error());
}

/* ---- ops that differ ----------------------------------------------------------------------------------------- */

static void nothing(void *inout, const void *in, int64_t n, tutti_dtype dtype, void *argument)
{
    (void)inout, (void)in, (void)n, (void)dtype, (void)argument;
}

/* Creates two ops and calls one of them, or SUM, which differs between the ranks. */
static int call_differing(tutti_group *group, int rank, bool with_sum)
{
    int32_t x[4] = {0};
    tutti_reduce_op first, second;
    EXPECT(tutti_op_create("first", nothing, NULL, NULL, &first) == TUTTI_OK);
    EXPECT(tutti_op_create("second", nothing, NULL, NULL, &second) == TUTTI_OK);
    tutti_reduce_op other = with_sum ? TUTTI_SUM : second;
    int status = tutti_all_reduce(tutti_view(x, 4), rank == 0 ? first : other, tutti_with(.group = group));
    EXPECT(status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_ABORTED);
    EXPECT(strstr(tutti_last_error(), "op first") != NULL);
    EXPECT(strstr(tutti_last_error(), with_sum ? "SUM" : "op second") != NULL);
    EXPECT(strstr(tutti_last_error(), "4 elements") != NULL);
    EXPECT(tutti_op_free(first) == TUTTI_OK && tutti_op_free(second) == TUTTI_OK);
    return 0;
}

static int differing(tutti_group *group, int rank, int size, void *argument)
{
    (void)size;
    return call_differing(group, rank, argument != NULL);
}

static void test_differing(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++) ranks_run(size, differing, NULL);
    ranks_run(3, differing, (void *)1);
}

static int differ_as_process(int rank, void *argument)
{
    if (tutti_init_process_group("tcp", &(tutti_init_opts){.timeout_ms = RANKS_HANG_MS}) != TUTTI_OK) return 1;
    int line = call_differing(NULL, rank, argument != NULL);
    tutti_destroy_process_group(NULL);
    return line;
}

/* Within a host SUM takes a path of its own, unlike an op of the program. */
static void test_differing_processes(void **state)
{
    (void)state;
    if (access(TUTTI_BACKENDS_DIR "/libtutti_tcp.so", R_OK) != 0) skip(); /* built without libfabric */
    if (tutti_spawn(differ_as_process, NULL, 3) != TUTTI_OK) fail_msg("%s", tutti_last_error());
    if (tutti_spawn(differ_as_process, (void *)1, 2) != TUTTI_OK) fail_msg("%s", tutti_last_error());
}

/* ---- invalid calls ------------------------------------------------------------------------------------------- */

static int creations(void)
{
    tutti_reduce_op op, other;
    char name[65];
    memset(name, 'x', 64);
    name[64] = '\0';
    INVALID(tutti_op_create(NULL, nothing, NULL, NULL, &op), "op_create|NULL");
    INVALID(tutti_op_create("a", NULL, NULL, NULL, &op), "op_create|fn");
    INVALID(tutti_op_create("a", nothing, NULL, NULL, NULL), "op_create|op is NULL");
    INVALID(tutti_op_create("", nothing, NULL, NULL, &op), "op_create|name has no characters|63");
    INVALID(tutti_op_create(name, nothing, NULL, NULL, &op), "op_create|too many characters|63");
    INVALID(tutti_op_create("a", nothing, NULL, &(tutti_op_opts){.element_bytes = -1}, &op), "element_bytes is -1");
    INVALID(tutti_op_create("a", nothing, NULL, &(tutti_op_opts){.element_bytes = 1 << 21}, &op), "is 2097152|1048576");
    INVALID(tutti_op_free(TUTTI_SUM), "op_free|0x0");
    INVALID(tutti_op_free((tutti_reduce_op)0x40000005), "op_free|0x40000005|freed");
    if (tutti_op_create(name + 1, nothing, NULL, NULL, &op) != TUTTI_OK) return __LINE__;
    if (strcmp(tutti_reduce_op_name(op), name + 1) != 0) return __LINE__;
    if (tutti_op_free(op) != TUTTI_OK || tutti_op_create("again", nothing, NULL, NULL, &other) != TUTTI_OK)
        return __LINE__;
    if (op == other) return __LINE__; /* so an op that was freed is refused */
    INVALID(tutti_op_free(op), "op_free");
    return tutti_op_free(other) == TUTTI_OK ? 0 : __LINE__;
}

static int most_ops(void)
{
    enum { MOST = 256 };
    tutti_reduce_op op[MOST + 1];
    for (int i = 0; i < MOST; i++)
        if (tutti_op_create("one of many", nothing, NULL, NULL, &op[i]) != TUTTI_OK) return __LINE__;
    REFUSED(tutti_op_create("more", nothing, NULL, NULL, &op[MOST]), NO_MEMORY, "256 ops|tutti_op_free");
    for (int i = 0; i < MOST; i++)
        if (tutti_op_free(op[i]) != TUTTI_OK) return __LINE__;
    return 0;
}

static void test_creations(void **state)
{
    (void)state;
    assert_int_equal(creations(), 0);
    assert_int_equal(most_ops(), 0);
}

static int misused(tutti_group *group, int rank, int size, void *argument)
{
    tutti_reduce_op op;
    uint8_t bytes[48] = {0};
    double doubles[4] = {0};
    tutti_opts kept = {.group = group}, *opts = &kept;
    (void)rank, (void)size, (void)argument;
    if (user_op_minloc(&op) != TUTTI_OK) return __LINE__;
    INVALID(tutti_all_reduce(tutti_view(bytes, 40), op, opts), "all_reduce|40 bytes|op minloc|16");
    INVALID(tutti_scan(tutti_view(doubles, 4), op, opts), "scan|op minloc|16 bytes|float64|uint8");
    INVALID(tutti_reduce_local(tutti_view(bytes, 24), tutti_view(bytes + 24, 24), op), "reduce_local|24|minloc|16");
    tutti_tensor cuda = tutti_on(tutti_view(bytes, 16), (tutti_device){TUTTI_CUDA, 0});
    if (tutti_all_reduce(cuda, op, opts) == TUTTI_OK) return __LINE__;
    if (tutti_op_free(op) != TUTTI_OK) return __LINE__;
    INVALID(tutti_all_reduce(tutti_view(bytes, 16), op, opts), "all_reduce|does not exist, or has been freed");
    INVALID(tutti_reduce_local(tutti_view(bytes, 16), tutti_view(bytes + 16, 16), op), "reduce_local|freed");
    EXPECT(tutti_barrier(opts) == TUTTI_OK);
    return 0;
}

static void test_misused(void **state)
{
    (void)state;
    ranks_run(3, misused, NULL);
}

static void test_local(void **state)
{
    struct {
        double value;
        int64_t index;
    } x[2] = {{3, 1}, {5, 1}}, y[2] = {{3, 0}, {7, 0}};
    tutti_reduce_op op;
    (void)state;
    assert_int_equal(user_op_minloc(&op), TUTTI_OK);
    assert_int_equal(
        tutti_reduce_local(tutti_tensor_of(x, sizeof x, TUTTI_UINT8), tutti_tensor_of(y, sizeof y, TUTTI_UINT8), op),
        TUTTI_OK);
    assert_int_equal(x[0].index, 0);
    assert_int_equal(x[1].index, 1);
    assert_int_equal(tutti_op_free(op), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes), cmocka_unit_test(test_differing_processes), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_differing), cmocka_unit_test(test_creations),           cmocka_unit_test(test_misused),
        cmocka_unit_test(test_local),
    };
    ranks_setup();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
