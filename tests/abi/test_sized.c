/* Programs that were built with older or newer headers, whose structs are shorter or longer than the library's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

enum { WRONG = 13 };

/* As in headers of an earlier version. */
struct old_opts {
    tutti_group *group;
};
struct old_group_opts {
    const char *backend;
    tutti_group *parent;
    int64_t timeout_ms;
};
struct old_store_opts {
    int64_t timeout_ms;
};

/* As in headers of a later version. */
struct new_opts {
    tutti_opts known;
    int64_t later;
};
struct new_p2p_op {
    tutti_p2p_op known;
    int64_t later;
};

/* Copies a struct to the end of mapped memory, so that reading beyond its size is a SIGSEGV. */
static const void *at_the_end(const void *data, size_t bytes)
{
    static char *pages;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (pages == NULL) {
        pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(pages != MAP_FAILED);
        assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    }
    return memcpy(pages + page - bytes, data, bytes);
}

/* Returns a group of this process alone. */
static tutti_group *alone(void)
{
    tutti_store *store = NULL;
    tutti_group *group = NULL;
    struct old_store_opts store_opts = {.timeout_ms = 5000};
    struct old_group_opts group_opts = {.timeout_ms = 5000};
    assert_int_equal(tutti_store_memory_sized(at_the_end(&store_opts, sizeof store_opts), sizeof store_opts, &store),
                     TUTTI_OK);
    if (tutti_create_group_sized("tcp", store, 0, 1, at_the_end(&group_opts, sizeof group_opts), sizeof group_opts,
                                 &group) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    tutti_store_free(store);
    return group;
}

static void test_older(void **state)
{
    tutti_group *group = alone();
    struct old_opts opts = {group};
    float x = 1;
    (void)state;
    int status = tutti_all_reduce_sized(tutti_view(&x, 1), TUTTI_SUM, at_the_end(&opts, sizeof opts), sizeof opts);
    if (status != TUTTI_OK) fail_msg("%s", tutti_last_error());
    tutti_destroy_process_group(group);
}

static void test_newer(void **state)
{
    tutti_group *group = alone();
    struct new_opts opts = {.known = {.group = group}};
    char text[64];
    (void)state;
    assert_int_equal(tutti_barrier_sized(&opts.known, sizeof opts), TUTTI_OK);
    opts.later = 1;
    assert_int_equal(tutti_barrier_sized(&opts.known, sizeof opts), TUTTI_ERR_INVALID_ARGUMENT);
    snprintf(text, sizeof text, "libtutti %s does not know", tutti_version());
    if (strstr(tutti_last_error(), text) == NULL) fail_msg("%s", tutti_last_error());
    opts.later = 0;
    assert_int_equal(tutti_barrier_sized(&opts.known, sizeof opts), TUTTI_OK);
    tutti_destroy_process_group(group);
}

/* A list's elements have the distance that the program's headers give them. */
static void test_list(void **state)
{
    tutti_group *group = alone();
    tutti_work *works[2] = {NULL, NULL};
    float x[2] = {0};
    struct new_p2p_op ops[2];
    (void)state;
    memset(ops, 0, sizeof ops);
    for (int i = 0; i < 2; i++)
        ops[i].known = (tutti_p2p_op){.kind = TUTTI_SEND, .tensor = tutti_view(&x[i], 1), .peer = i};
    ops[1].known.peer = 7;
    ops[0].known.kind = TUTTI_BARRIER;
    tutti_opts opts = {.group = group};
    assert_int_equal(tutti_batch_isend_irecv_sized(&ops[0].known, sizeof *ops, 2, &opts, sizeof opts, works),
                     TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "ops[0] is neither"));
    ops[0].known.kind = TUTTI_SEND;
    ops[1].later = 1;
    assert_int_equal(tutti_batch_isend_irecv_sized(&ops[0].known, sizeof *ops, 2, &opts, sizeof opts, works),
                     TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "tutti_p2p_op has"));
    tutti_destroy_process_group(group);
}

static tutti_opts opts;

/* Calls functions that take a size, by number.  Each must refuse a size that cannot be right. */
static int make_group(int which, size_t bytes)
{
    static tutti_group_opts group_opts;
    static tutti_init_opts init_opts;
    tutti_group *group = NULL;
    int ranks[1] = {0};
    char text[64];
    switch (which) {
    case 0:
        return tutti_init_process_group_sized(NULL, &init_opts, bytes);
    case 1:
        return tutti_new_group_sized(ranks, 1, &group_opts, bytes, &group);
    case 2:
        return tutti_split_group_sized(0, 0, &group_opts, bytes, &group);
    case 3:
        return tutti_create_group_sized("tcp", (tutti_store *)text, 0, 1, &group_opts, bytes, &group);
    default:
        return 1;
    }
}

static int call_collective(int which, size_t bytes)
{
    tutti_tensor t = {0};
    switch (which) {
    case 4:
        return tutti_broadcast_sized(t, 0, &opts, bytes);
    case 5:
        return tutti_all_reduce_sized(t, TUTTI_SUM, &opts, bytes);
    case 6:
        return tutti_all_reduce_into_sized(t, t, TUTTI_SUM, &opts, bytes);
    case 7:
        return tutti_reduce_sized(t, 0, TUTTI_SUM, &opts, bytes);
    case 8:
        return tutti_reduce_into_sized(t, t, 0, TUTTI_SUM, &opts, bytes);
    case 9:
        return tutti_all_gather_sized(&t, 1, t, &opts, bytes);
    case 10:
        return tutti_all_gather_into_tensor_sized(t, t, &opts, bytes);
    case 11:
        return tutti_gather_sized(t, &t, 1, 0, &opts, bytes);
    case 12:
        return tutti_gather_into_tensor_sized(t, t, 0, &opts, bytes);
    case 13:
        return tutti_scatter_sized(t, &t, 1, 0, &opts, bytes);
    case 14:
        return tutti_scatter_tensor_sized(t, t, 0, &opts, bytes);
    case 15:
        return tutti_reduce_scatter_sized(t, &t, 1, TUTTI_SUM, &opts, bytes);
    case 16:
        return tutti_reduce_scatter_tensor_sized(t, t, TUTTI_SUM, &opts, bytes);
    case 17:
        return tutti_all_to_all_sized(&t, &t, 1, &opts, bytes);
    case 18:
        return tutti_all_to_all_single_sized(t, t, NULL, NULL, &opts, bytes);
    case 19:
        return tutti_barrier_sized(&opts, bytes);
    case 20:
        return tutti_monitored_barrier_sized(&opts, bytes);
    default:
        return 1;
    }
}

static int call_message(int which, size_t bytes)
{
    static tutti_p2p_op op;
    tutti_tensor t = {0};
    tutti_work *work = NULL;
    tutti_bytes out = {0};
    switch (which) {
    case 21:
        return tutti_send_sized(t, 0, &opts, bytes);
    case 22:
        return tutti_recv_sized(t, 0, &opts, bytes);
    case 23:
        return tutti_isend_sized(t, 0, &opts, bytes, &work);
    case 24:
        return tutti_irecv_sized(t, 0, &opts, bytes, &work);
    case 25:
        return tutti_batch_isend_irecv_sized(&op, sizeof op, 1, &opts, bytes, &work);
    case 26:
        return tutti_batch_isend_irecv_sized(&op, bytes, 1, &opts, sizeof opts, &work);
    case 27:
        return tutti_all_gather_bytes_sized(&out, 1, "", 0, &opts, bytes);
    case 28:
        return tutti_gather_bytes_sized(&out, 1, "", 0, 0, &opts, bytes);
    case 29:
        return tutti_broadcast_bytes_sized(&out, 0, &opts, bytes);
    case 30:
        return tutti_scatter_bytes_sized(&out, &out, 1, 0, &opts, bytes);
    default:
        return 1;
    }
}

static int call_other(int which, size_t bytes)
{
    static tutti_store_opts store_opts;
    tutti_store *store = NULL;
    char text[64];
    switch (which) {
    case 31:
        return tutti_explain_sized(TUTTI_BROADCAST, 8, &opts, bytes, text, sizeof text);
    case 32:
        return tutti_store_tcp_sized("127.0.0.1", 1, &store_opts, bytes, &store);
    case 33:
        return tutti_store_file_sized("/", &store_opts, bytes, &store);
    case 34:
        return tutti_store_memory_sized(&store_opts, bytes, &store);
    default:
        return 1;
    }
}

static int call(int which, size_t bytes)
{
    if (which < 4) return make_group(which, bytes);
    if (which < 21) return call_collective(which, bytes);
    return which < 31 ? call_message(which, bytes) : call_other(which, bytes);
}

static void test_refused(void **state)
{
    static const size_t wrong[] = {0, WRONG, (size_t)1 << 40, SIZE_MAX};
    int which = 0;
    (void)state;
    for (; call(which, 0) != 1; which++)
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            int status = call(which, wrong[i]);
            if (status != TUTTI_ERR_INVALID_ARGUMENT || strstr(tutti_last_error(), "pass sizeof(") == NULL)
                fail_msg("call %d with a size of %zu: %d %s", which, wrong[i], status, tutti_last_error());
        }
    assert_int_equal(which, 35);
}

/* NULL means all defaults, whatever the size. */
static void test_null(void **state)
{
    tutti_store *store = NULL;
    (void)state;
    assert_int_equal(tutti_store_memory_sized(NULL, WRONG, &store), TUTTI_OK);
    tutti_store_free(store);
    assert_int_equal(tutti_barrier_sized(NULL, 0), TUTTI_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "no default group"));
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(tutti_abi_version(), TUTTI_ABI_VERSION);
    assert_string_equal(tutti_kind_name(TUTTI_ALL_REDUCE), "all_reduce");
    assert_string_equal(tutti_dtype_name(TUTTI_BFLOAT16), "bfloat16");
    assert_string_equal(tutti_reduce_op_name(TUTTI_PREMUL_SUM), "PREMUL_SUM");
    assert_non_null(tutti_kind_name((tutti_kind)-1));
    assert_non_null(tutti_dtype_name((tutti_dtype)99));
    assert_non_null(tutti_reduce_op_name((tutti_reduce_op)99));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_older), cmocka_unit_test(test_newer),
                                       cmocka_unit_test(test_list),  cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_null),  cmocka_unit_test(test_names)};
    setenv("TUTTI_BACKEND_PATH", TUTTI_BACKENDS_DIR, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
