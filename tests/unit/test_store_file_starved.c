/* The file store of a process without memory: it reports the error, and processes that share the file lose nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "store/store_impl.h"
#include "store_check.h"

/* ---- allocations, of which one fails ---------------------------------------------------------------------------- */

static int until_failure; /* 1: the next allocation fails; 0: none */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static bool fails_now(void)
{
    return until_failure > 0 && --until_failure == 0;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return fails_now() ? NULL : __real_realloc(old, bytes);
}

/* ---- two that share a file -------------------------------------------------------------------------------------- */

enum { ALLOCATIONS_MOST = 200 };

static char path[64];
static tutti_store *rich, *poor;

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/test_store_file_starved.%d", (int)getpid());
    unlink(path);
    OK(tutti_store_file(path, NULL, &rich));
    OK(tutti_store_file(path, NULL, &poor));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tutti_store_free(poor);
    tutti_store_free(rich);
    unlink(path);
    return 0;
}

static off_t file_bytes(void)
{
    struct stat stat_now;
    assert_int_equal(stat(path, &stat_now), 0);
    return stat_now.st_size;
}

static int set_three(tutti_store *store, const char *value)
{
    const char *const keys[] = {"three/a", "three/b", "three/c"};
    tutti_bytes values[3];
    for (int i = 0; i < 3; i++) values[i] = (tutti_bytes){(void *)(uintptr_t)value, strlen(value)};
    return tutti_store_multi_set(store, keys, values, 3);
}

static int claim(tutti_store *store, const char *key)
{
    size_t bytes = 0;
    char now[16];
    return tutti_store_compare_set(store, key, "", 0, "mine", 4, now, sizeof now, &bytes);
}

/* Checks that both handles hold the same values. */
static void assert_agree(const char *const *keys, int n)
{
    int64_t counts[2];
    OK(tutti_store_num_keys(rich, &counts[0]));
    OK(tutti_store_num_keys(poor, &counts[1]));
    assert_int_equal(counts[0], counts[1]);
    for (int i = 0; i < n; i++) {
        char values[2][600];
        size_t bytes[2] = {0};
        int status[2] = {tutti_store_get(rich, keys[i], values[0], sizeof values[0], &bytes[0], 0),
                         tutti_store_get(poor, keys[i], values[1], sizeof values[1], &bytes[1], 0)};
        assert_int_equal(status[0], status[1]);
        assert_int_equal(bytes[0], bytes[1]);
        assert_memory_equal(values[0], values[1], bytes[0]);
    }
}

/* ---- others' records -------------------------------------------------------------------------------------------- */

static void write_some(int round)
{
    char key[32];
    OK(tutti_store_add(rich, "counter", 1, NULL));
    OK(set_three(rich, round % 2 == 0 ? "even" : "odd"));
    OK(tutti_store_append(rich, "list", "x", 1));
    snprintf(key, sizeof key, "claim/%d", round);
    OK(claim(rich, key));
}

/* Each allocation of the call that reads the records fails once. */
static void test_taking_in(void **state)
{
    (void)state;
    const char *const keys[] = {"counter", "three/a", "three/b", "three/c", "list", "claim/0", "claim/7"};
    int failed = 0, status = TUTTI_ERR_NO_MEMORY;
    for (int round = 0; status != TUTTI_OK && round < ALLOCATIONS_MOST; round++) {
        bool present = false;
        write_some(round);
        off_t before = file_bytes();
        until_failure = round + 1;
        status = tutti_store_check(poor, keys, 1, &present);
        until_failure = 0;
        if (status != TUTTI_OK) store_check(status, TUTTI_ERR_NO_MEMORY, "check", __LINE__);
        failed += status != TUTTI_OK;
        assert_int_equal(file_bytes(), before);
        assert_agree(keys, 7);
    }
    assert_int_equal(status, TUTTI_OK);
    assert_true(failed > 8);
}

/* ---- its own ---------------------------------------------------------------------------------------------------- */

static int own_add(const char *key)
{
    (void)key;
    return tutti_store_add(poor, "own", 1, NULL);
}

static int own_append(const char *key)
{
    (void)key;
    return tutti_store_append(poor, "list", "y", 1);
}

static int own_three(const char *key)
{
    return set_three(poor, key);
}

static int own_claim(const char *key)
{
    return claim(poor, key);
}

/* A failed call has no effect, either on its own handle's table or on the other one's. */
static void test_own(void **state)
{
    (void)state;
    int (*const calls[])(const char *key) = {own_add, own_append, own_three, own_claim};
    const char *const keys[] = {"own", "list", "three/a", "three/b", "three/c"};
    write_some(0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        int failed = 0, status = TUTTI_ERR_NO_MEMORY;
        for (int round = 0; status != TUTTI_OK && round < ALLOCATIONS_MOST; round++) {
            char key[32];
            snprintf(key, sizeof key, "key/%zu/%d", i, round);
            off_t before = file_bytes();
            until_failure = round + 1;
            status = calls[i](key);
            until_failure = 0;
            if (status != TUTTI_OK) store_check(status, TUTTI_ERR_NO_MEMORY, "its own call", __LINE__);
            failed += status != TUTTI_OK;
            if (status != TUTTI_OK) assert_int_equal(file_bytes(), before);
            assert_agree(keys, 5);
        }
        assert_int_equal(status, TUTTI_OK);
        assert_true(failed > 0);
    }
    int64_t sum = 0;
    OK(tutti_store_add(rich, "own", 0, &sum));
    assert_int_equal(sum, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_taking_in, setup, teardown),
        cmocka_unit_test_setup_teardown(test_own, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
