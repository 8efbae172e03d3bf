/* The library's reports about itself, on ranks that are threads: hosts, backends, and how an operation would run. */
#include <stdint.h>
#include <unistd.h>

#include "conformance/explained.h"
#include "ranks.h"

enum { TEXT_MAX = 4096 };

/* ---- hosts ------------------------------------------------------------------------------------------------------ */

static int hosts_rank(tutti_group *group, int rank, int size, void *argument)
{
    static const int wanted[] = {0, 1, 0, 2, 2};
    tutti_group *part = NULL;
    (void)argument;
    for (int i = 0; i < size; i++) EXPECT(tutti_get_host(group, i) == wanted[i]);
    EXPECT(tutti_get_host(group, -1) == -1 && tutti_get_host(group, size) == -1);
    EXPECT(explained(group, TUTTI_BARRIER, 0, "5 ranks on 3 hosts"));
    EXPECT(explained(group, TUTTI_BARRIER, 0, "algorithm leaders: its estimate is the lowest"));
    EXPECT(explained(group, TUTTI_BARRIER, 0, "estimates in us: leaders "));
    EXPECT(tutti_new_group((int[]){4, 1, 3}, 3, &(tutti_group_opts){.parent = group}, &part) == TUTTI_OK);
    if (tutti_get_rank(part) >= 0) {
        for (int i = 0; i < 3; i++) EXPECT(tutti_get_host(part, i) == (i == 1)); /* renumbered */
        EXPECT(explained(part, TUTTI_BARRIER, 0, "3 ranks on 2 hosts"));
    } else {
        EXPECT(rank == 0 || rank == 2);
        EXPECT(tutti_get_host(part, 0) == -1);
    }
    EXPECT(tutti_destroy_process_group(part) == TUTTI_OK);
    return 0;
}

static void hosts(void **state)
{
    (void)state;
    setenv("LOOP_HOSTS", "7,3,7,9", 1);
    ranks_run(5, hosts_rank, NULL);
    unsetenv("LOOP_HOSTS");
    assert_int_equal(tutti_get_host(NULL, 0), -1);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static int operations_rank(tutti_group *group, int rank, int size, void *argument)
{
    char text[TEXT_MAX], line[64];
    (void)argument;
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 1024, "all_reduce of 1024 bytes in group own: 4 ranks on 1 host"));
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 1024, "algorithm recursive_doubling: its estimate is the lowest"));
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 1024, "estimates in us: recursive_doubling "));
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 1024, "segments of up to 4096 bytes"));
    snprintf(line, sizeof line, "rank %d: ", rank);
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 1024, line));
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 1024, "2 messages with 2048 bytes"));
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 1 << 24, "algorithm ring: "));
    EXPECT(explained(group, TUTTI_ALL_GATHER, 4000, "2 messages with 3000 bytes")); /* bruck */
    EXPECT(explained(group, TUTTI_SEND, 4, "loop: one message"));
    EXPECT(explained(group, TUTTI_MONITORED_BARRIER, 0, "algorithm linear: every rank"));
    EXPECT(tutti_explain(TUTTI_COALESCED, 4, tutti_with(.group = group), text, sizeof text) ==
           TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_explain(TUTTI_BROADCAST, -1, tutti_with(.group = group), text, sizeof text) ==
           TUTTI_ERR_INVALID_ARGUMENT);
    EXPECT(tutti_explain(TUTTI_BROADCAST, 4, tutti_with(.group = group), text, 0) == TUTTI_ERR_INVALID_ARGUMENT);
    memset(text, 'x', sizeof text);
    EXPECT(tutti_explain(TUTTI_BROADCAST, 4, tutti_with(.group = group), text, 10) == TUTTI_OK);
    EXPECT(strcmp(text, "broadcast") == 0 && text[10] == 'x'); /* as much as fits */
    EXPECT(tutti_describe_group(group, text, sizeof text) == TUTTI_OK);
    snprintf(line, sizeof line, "loop: rank %d of %d, a thread\n", rank, size);
    EXPECT(strcmp(text, line) == 0);
    return 0;
}

static void operations(void **state)
{
    (void)state;
    ranks_run(4, operations_rank, NULL);
}

static int named_rank(tutti_group *group, int rank, int size, void *argument)
{
    (void)rank;
    (void)size;
    EXPECT(explained(group, TUTTI_ALL_REDUCE, 64, argument));
    return 0;
}

static void by_name(void **state)
{
    (void)state;
    setenv("TUTTI_ALGO", "all_reduce=ring", 1);
    ranks_run(3, named_rank, "algorithm ring: TUTTI_ALGO or TUTTI_DETERMINISTIC asks for \"all_reduce=ring\"");
    unsetenv("TUTTI_ALGO");
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(tutti_algorithm_name(TUTTI_BARRIER, 0), "dissemination");
    assert_string_equal(tutti_algorithm_name(TUTTI_BARRIER, 1), "dissemination_4");
    assert_null(tutti_algorithm_name(TUTTI_BARRIER, 99));
    assert_null(tutti_algorithm_name(TUTTI_BARRIER, -1));
    assert_null(tutti_algorithm_name(TUTTI_SEND, 0));
}

/* ---- tuning ------------------------------------------------------------------------------------------------------ */

static void tuned(void **state)
{
    char path[] = "/tmp/tutti-tuning-XXXXXX";
    static const char good[] = "tutti tuning 1\nloop 3 1 all_reduce 64 rabenseifner\n", bad[] = "tutti tuning 0\n";
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    setenv("TUTTI_TUNING", path, 1);
    assert_int_equal(pwrite(fd, good, sizeof good - 1, 0), sizeof good - 1);
    ranks_run(3, named_rank, "algorithm rabenseifner: TUTTI_TUNING selects it for all_reduce of up to 64 bytes");
    ranks_run(2, named_rank, "its estimate is the lowest"); /* rows for another number of ranks */
    assert_int_equal(pwrite(fd, bad, sizeof bad - 1, 0), sizeof bad - 1);
    ranks_run(3, named_rank, "its estimate is the lowest");
    unsetenv("TUTTI_TUNING");
    close(fd);
    unlink(path);
}

/* ---- backends ---------------------------------------------------------------------------------------------------- */

static void backends(void **state)
{
    char text[TEXT_MAX];
    (void)state;
    assert_int_equal(tutti_list_backends(text, sizeof text), TUTTI_OK);
    assert_non_null(strstr(text, "broken_abi broken_depends"));
    assert_non_null(strstr(text, " loop"));
    assert_int_equal(tutti_list_backends(text, 12), TUTTI_OK);
    assert_string_equal(text, "broken_abi"); /* as many as fit */
    assert_int_equal(tutti_list_backends(NULL, 12), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(tutti_describe_backend("loop", text, sizeof text), TUTTI_OK);
    assert_non_null(strstr(text, "/tests/plugins/libtutti_loop.so, version for tests\n"
                                 "for CPU tensors: messages, and plans over them\na table in memory\n"));
    assert_int_equal(tutti_describe_backend("broken_probe", text, sizeof text), TUTTI_ERR_BACKEND);
    assert_non_null(strstr(tutti_last_error(), "the driver is older than this plug-in"));
    assert_int_equal(tutti_describe_backend("nowhere", text, sizeof text), TUTTI_ERR_BACKEND);
    assert_non_null(strstr(tutti_last_error(), "tried "));
    assert_int_equal(tutti_describe_backend(NULL, text, sizeof text), TUTTI_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts), cmocka_unit_test(operations), cmocka_unit_test(by_name),
        cmocka_unit_test(names), cmocka_unit_test(tuned),      cmocka_unit_test(backends),
    };
    ranks_setup();
    setenv("TUTTI_TEST_BACKEND", "loop", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
