/* Properties of the file store alone: processes that share it, and writers that die. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "store/store_impl.h"
#include "store_check.h"

static char path[64];

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/test_store_file.%d", (int)getpid());
    unlink(path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

/* Forks a process that counts up until it is killed. */
static pid_t start_counter(void)
{
    pid_t child = fork();
    if (child != 0) return child;
    tutti_store *store;
    if (tutti_store_file(path, NULL, &store) != TUTTI_OK) _exit(1);
    for (;;)
        if (tutti_store_add(store, "n", 1, NULL) != TUTTI_OK) _exit(2);
}

static void test_processes(void **state)
{
    (void)state;
    enum { N = 4, ADDS = 100 };
    tutti_store *store;
    int64_t sum;
    OK(tutti_store_file(path, NULL, &store));
    for (int i = 0; i < N; i++) {
        if (fork() != 0) continue;
        tutti_store *mine;
        int status = tutti_store_file(path, NULL, &mine);
        for (int k = 0; k < ADDS && status == TUTTI_OK; k++) status = tutti_store_add(mine, "n", 1, NULL);
        if (status == TUTTI_OK) status = tutti_store_barrier(mine, "end", N + 1, 20000);
        tutti_store_free(mine);
        _exit(status != TUTTI_OK);
    }
    OK(tutti_store_barrier(store, "end", N + 1, 20000));
    for (int i = 0; i < N; i++) {
        int result = -1;
        assert_true(wait(&result) > 0);
        assert_int_equal(result, 0);
    }
    OK(tutti_store_add(store, "n", 0, &sum));
    assert_int_equal(sum, N * ADDS);
    tutti_store_free(store);
}

static void test_killed_writers(void **state)
{
    (void)state;
    tutti_store *store;
    int64_t before = 0, after = 0;
    OK(tutti_store_file(path, NULL, &store));
    for (int i = 0; i < 10; i++) {
        pid_t child = start_counter();
        nanosleep(&(struct timespec){.tv_nsec = 20000000 + 1234567 * i}, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        OK(tutti_store_add(store, "n", 1, &after));
        assert_true(after > before);
        before = after;
    }
    tutti_store_free(store);
}

static void append_bytes(const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_true(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
}

static void assert_holds(tutti_store *store, const char *want)
{
    char value[16] = "";
    size_t bytes;
    OK(tutti_store_get(store, "k", value, sizeof value - 1, &bytes, 0));
    assert_string_equal(value, want);
}

/* An unfinished record, and one with changed bytes. */
static void test_torn_records(void **state)
{
    (void)state;
    tutti_store *store, *other;
    OK(tutti_store_file(path, NULL, &store));
    OK(tutti_store_set(store, "k", "good", 4));
    struct stat stat_good, stat_torn;
    assert_int_equal(stat(path, &stat_good), 0);
    static const uint8_t torn[][60] = {{50}, {10, 0, 0, 0, 1, 2, 3}, {255, 255, 255, 255, 1}};
    for (size_t i = 0; i < sizeof torn / sizeof *torn; i++) {
        append_bytes(torn[i], i == 0 ? 3 : sizeof torn[i]);
        assert_holds(store, "good");
        assert_int_equal(stat(path, &stat_torn), 0);
        assert_int_equal(stat_torn.st_size, stat_good.st_size);
    }
    uint8_t record[256]; /* the whole record again, with another last byte: "gooe" */
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = pread(fd, record, sizeof record, 8);
    close(fd);
    assert_int_equal(bytes, stat_good.st_size - 8);
    record[bytes - 1]++;
    append_bytes(record, (size_t)bytes);
    assert_holds(store, "good");
    OK(tutti_store_file(path, NULL, &other));
    assert_holds(other, "good");
    OK(tutti_store_set(other, "k", "new", 3));
    assert_holds(store, "new");
    tutti_store_free(other);
    tutti_store_free(store);
}

static void test_refused_files(void **state)
{
    (void)state;
    tutti_store *store;
    FAILS(tutti_store_file("/nonexistent/x", NULL, &store), TUTTI_ERR_SYSTEM);
    FAILS(tutti_store_file("/dev/null", NULL, &store), TUTTI_ERR_STORE);
    assert_non_null(strstr(error_text(), "not a regular file"));
    FAILS(tutti_store_file("", NULL, &store), TUTTI_ERR_INVALID_ARGUMENT);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(write(fd, "a diary, not a store", 20) == 20);
    FAILS(tutti_store_file(path, NULL, &store), TUTTI_ERR_STORE);
    assert_non_null(strstr(error_text(), "left untouched"));
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(fchmod(fd, 0666), 0);
    FAILS(tutti_store_file(path, NULL, &store), TUTTI_ERR_STORE);
    assert_non_null(strstr(error_text(), "0666"));
    close(fd);
    unlink(path);
    assert_int_equal(symlink("/tmp/elsewhere", path), 0);
    FAILS(tutti_store_file(path, NULL, &store), TUTTI_ERR_SYSTEM);
}

/* Writing beyond the file size limit is an error, and no signal. */
static int write_under_a_limit(void)
{
    char large[2000] = "";
    tutti_store *store;
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, 1000});
    if (tutti_store_file(path, NULL, &store) != TUTTI_OK || tutti_store_set(store, "k", "good", 4) != TUTTI_OK)
        return 1;
    if (tutti_store_set(store, "k", large, sizeof large) != TUTTI_ERR_SYSTEM) return 2;
    if (strstr(error_text(), "cannot be written: File too large") == NULL) return 3;
    return tutti_store_set(store, "l", "fits", 4) == TUTTI_OK ? 0 : 4;
}

static void test_limited(void **state)
{
    (void)state;
    tutti_store *store;
    int result = -1;
    pid_t child = fork();
    if (child == 0) _exit(write_under_a_limit());
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    OK(tutti_store_file(path, NULL, &store));
    assert_holds(store, "good");
    tutti_store_free(store);
}

static void test_shortened(void **state)
{
    (void)state;
    tutti_store *store;
    OK(tutti_store_file(path, NULL, &store));
    OK(tutti_store_set(store, "k", "v", 1));
    assert_int_equal(truncate(path, 8), 0);
    FAILS(tutti_store_set(store, "k", "w", 1), TUTTI_ERR_STORE);
    assert_non_null(strstr(error_text(), "the file shrank"));
    tutti_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_processes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_killed_writers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn_records, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limited, setup, teardown),
        cmocka_unit_test_setup_teardown(test_shortened, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
