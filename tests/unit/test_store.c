/* Every operation on each kind of store. */
#include "store_fixture.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/store_impl.h"

/* ---- one key ------------------------------------------------------------------------------------------------ */

static void test_set_get(void **state)
{
    struct fixture *f = *state;
    char buffer[4] = "zzz";
    size_t bytes;
    OK(tutti_store_set(f->a, "k", "first", 5));
    store_fixture_check_value(f->b, "k", "first");
    OK(tutti_store_set(f->b, "k", "2", 1));
    store_fixture_check_value(f->a, "k", "2");
    OK(tutti_store_set(f->a, "empty", NULL, 0));
    OK(tutti_store_get(f->b, "empty", NULL, 0, &bytes, 0));
    assert_int_equal(bytes, 0);
    OK(tutti_store_set(f->a, "k", "longer", 6));
    FAILS(tutti_store_get(f->b, "k", buffer, sizeof buffer, &bytes, 0), TUTTI_ERR_INVALID_ARGUMENT);
    assert_int_equal(bytes, 6);
    assert_string_equal(buffer, "zzz");
}

static void test_binary_values(void **state)
{
    struct fixture *f = *state;
    uint8_t value[256], got[256];
    size_t bytes;
    for (int i = 0; i < 256; i++) value[i] = (uint8_t)i;
    OK(tutti_store_set(f->a, "binary \xff\x01 key", value, sizeof value));
    OK(tutti_store_get(f->b, "binary \xff\x01 key", got, sizeof got, &bytes, 0));
    assert_int_equal(bytes, sizeof value);
    assert_memory_equal(got, value, sizeof value);
}

static void test_add(void **state)
{
    struct fixture *f = *state;
    int64_t value;
    OK(tutti_store_add(f->a, "n", 5, &value));
    assert_int_equal(value, 5);
    OK(tutti_store_add(f->b, "n", -7, &value));
    assert_int_equal(value, -2);
    store_fixture_check_value(f->a, "n", "-2");
    OK(tutti_store_set(f->a, "n", "9223372036854775807", 19));
    OK(tutti_store_add(f->a, "n", 1, &value));
    assert_true(value == INT64_MIN);
    OK(tutti_store_add(f->a, "n", 0, NULL));
    OK(tutti_store_set(f->a, "n", "12x", 3));
    FAILS(tutti_store_add(f->b, "n", 1, &value), TUTTI_ERR_STORE);
    store_fixture_check_value(f->a, "n", "12x");
}

static void test_compare_set(void **state)
{
    struct fixture *f = *state;
    char buffer[8] = "";
    size_t bytes = 99;
    OK(tutti_store_compare_set(f->a, "c", "old", 3, "new", 3, buffer, sizeof buffer, &bytes));
    assert_int_equal(bytes, 0); /* the key is expected to be absent, and stays absent */
    FAILS(tutti_store_get(f->a, "c", buffer, sizeof buffer, &bytes, 0), TUTTI_ERR_TIMEOUT);
    OK(tutti_store_compare_set(f->a, "c", "", 0, "one", 3, buffer, sizeof buffer, &bytes));
    assert_int_equal(bytes, 3);
    assert_memory_equal(buffer, "one", 3);
    OK(tutti_store_compare_set(f->b, "c", "", 0, "two", 3, buffer, sizeof buffer, &bytes));
    assert_memory_equal(buffer, "one", 3);
    OK(tutti_store_compare_set(f->b, "c", "one", 3, "twelve", 6, buffer, 2, &bytes));
    assert_int_equal(bytes, 6);
    assert_memory_equal(buffer, "one", 3); /* buffer too small: unchanged, and no error */
    store_fixture_check_value(f->a, "c", "twelve");
}

static void test_delete(void **state)
{
    struct fixture *f = *state;
    bool existed;
    OK(tutti_store_set(f->a, "d", "1", 1));
    OK(tutti_store_delete(f->b, "d", &existed));
    assert_true(existed);
    OK(tutti_store_delete(f->a, "d", &existed));
    assert_false(existed);
    OK(tutti_store_delete(f->a, "d", NULL));
}

static void test_clear(void **state)
{
    struct fixture *f = *state;
    bool present = false;
    const char *left[] = {"world/10", "orld/1/a"};
    OK(tutti_store_set(f->a, "world/1/a", "1", 1));
    OK(tutti_store_set(f->a, "world/1/", "2", 1));
    OK(tutti_store_set(f->a, "world/1/b/c", "3", 1));
    OK(tutti_store_set(f->a, left[0], "4", 1));
    OK(tutti_store_set(f->a, left[1], "5", 1));
    if (f->custom) {
        FAILS(store_clear(f->b, "world/1/"), TUTTI_ERR_UNSUPPORTED);
        return;
    }
    OK(store_clear(f->b, "world/1/"));
    int64_t count = 0;
    OK(tutti_store_num_keys(f->a, &count));
    assert_int_equal(count, 2);
    OK(tutti_store_check(f->a, left, 2, &present));
    assert_true(present);
    OK(store_clear(f->b, "none"));
}

static void test_append(void **state)
{
    struct fixture *f = *state;
    OK(tutti_store_append(f->a, "log", "one,", 4));
    OK(tutti_store_append(f->b, "log", "two,", 4));
    OK(tutti_store_append(f->a, "log", "", 0));
    OK(tutti_store_append(f->a, "log", "three", 5));
    store_fixture_check_value(f->b, "log", "one,two,three");
}

/* Each call is one request, from any handle and however long it waits. */
static void test_num_requests(void **state)
{
    struct fixture *f = *state;
    int64_t before = 0, after = 0;
    char value[8];
    size_t bytes;
    OK(tutti_store_num_requests(f->a, &before));
    OK(tutti_store_set(f->a, "counted", "x", 1));
    OK(tutti_store_get(f->a, "counted", value, sizeof value, &bytes, 1000));
    assert_int_equal(tutti_store_get(f->a, "never", value, sizeof value, &bytes, 50), TUTTI_ERR_TIMEOUT);
    OK(tutti_store_num_requests(f->a, &after));
    assert_int_equal(after - before, 4);
    FAILS(tutti_store_num_requests(f->a, NULL), TUTTI_ERR_INVALID_ARGUMENT);
}

static void test_num_keys(void **state)
{
    struct fixture *f = *state;
    int64_t count;
    OK(tutti_store_num_keys(f->a, &count));
    assert_int_equal(count, 0);
    OK(tutti_store_set(f->a, "x", "", 0));
    OK(tutti_store_set(f->b, "y", "", 0));
    OK(tutti_store_set(f->b, "y", "again", 5));
    OK(tutti_store_num_keys(f->b, &count));
    assert_int_equal(count, 2);
}

/* ---- many keys ---------------------------------------------------------------------------------------------- */

static void test_wait_and_check(void **state)
{
    struct fixture *f = *state;
    const char *keys[] = {"w0", "w1", "w2"};
    bool present = true;
    OK(tutti_store_set(f->a, "w0", "", 0));
    OK(tutti_store_check(f->b, keys, 3, &present));
    assert_false(present);
    OK(tutti_store_check(f->b, keys, 1, &present));
    assert_true(present);
    int64_t begun = clock_now_ns();
    FAILS(tutti_store_wait(f->b, keys, 3, 120), TUTTI_ERR_TIMEOUT);
    assert_true(clock_now_ns() - begun >= 100000000);
    assert_non_null(strstr(error_text(), "w1\""));
    assert_non_null(strstr(error_text(), "w2\""));
    assert_non_null(strstr(error_text(), "2 of 3"));
    OK(tutti_store_set(f->a, "w1", "", 0));
    OK(tutti_store_set(f->a, "w2", "", 0));
    OK(tutti_store_wait(f->b, keys, 3, 0));
    OK(tutti_store_wait(f->b, NULL, 0, 0));
}

static void test_multi(void **state)
{
    enum { N = 200 };
    struct fixture *f = *state;
    char names[N][16], texts[N][16];
    const char *keys[N];
    tutti_bytes values[N], got[N];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "m%d", i);
        snprintf(texts[i], sizeof texts[i], "value %d", i * i);
        keys[i] = names[i];
        values[i] = (tutti_bytes){texts[i], strlen(texts[i])};
    }
    OK(tutti_store_multi_set(f->a, keys, values, N));
    OK(tutti_store_multi_get(f->b, keys, N, got, 1000));
    for (int i = 0; i < N; i++) {
        assert_int_equal(got[i].bytes, values[i].bytes);
        assert_memory_equal(got[i].data, values[i].data, got[i].bytes);
    }
    tutti_bytes_free(got, N);
    assert_null(got[3].data);
    keys[7] = "not there";
    FAILS(tutti_store_multi_get(f->b, keys, N, got, 0), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(error_text(), "not there"));
}

/* The request exceeds one frame, so it is sent in parts. */
static void test_multi_large(void **state)
{
    enum { N = 5, BYTES = 5 << 20 };
    struct fixture *f = *state;
    const char *keys[N] = {"l0", "l1", "l2", "l3", "l4"};
    tutti_bytes values[N], got[N];
    char *data = malloc(BYTES);
    memset(data, 'q', BYTES);
    for (int i = 0; i < N; i++) values[i] = (tutti_bytes){data, (size_t)(BYTES - i)};
    OK(tutti_store_multi_set(f->a, keys, values, N));
    OK(tutti_store_multi_get(f->b, keys, N, got, 20000));
    for (int i = 0; i < N; i++) {
        assert_int_equal(got[i].bytes, values[i].bytes);
        assert_memory_equal(got[i].data, data, got[i].bytes);
    }
    tutti_bytes_free(got, N);
    free(data);
}

/* ---- limits and bad arguments ------------------------------------------------------------------------------- */

static void test_limits(void **state)
{
    struct fixture *f = *state;
    size_t bytes;
    char *key = malloc(TUTTI_STORE_KEY_MAX + 2), *value = calloc(1, TUTTI_STORE_VALUE_MAX + 1);
    memset(key, 'k', TUTTI_STORE_KEY_MAX + 1);
    key[TUTTI_STORE_KEY_MAX + 1] = '\0';
    FAILS(tutti_store_set(f->a, key, "", 0), TUTTI_ERR_INVALID_ARGUMENT);
    key[TUTTI_STORE_KEY_MAX] = '\0';
    FAILS(tutti_store_set(f->a, key, "", 0), f->below != NULL ? TUTTI_ERR_INVALID_ARGUMENT : TUTTI_OK);
    FAILS(tutti_store_set(f->a, "v", value, TUTTI_STORE_VALUE_MAX + 1), TUTTI_ERR_INVALID_ARGUMENT);
    OK(tutti_store_set(f->a, "v", value, TUTTI_STORE_VALUE_MAX));
    FAILS(tutti_store_append(f->b, "v", "x", 1), TUTTI_ERR_INVALID_ARGUMENT);
    OK(tutti_store_get(f->b, "v", value, TUTTI_STORE_VALUE_MAX, &bytes, 5000));
    assert_int_equal(bytes, TUTTI_STORE_VALUE_MAX);
    free(key);
    free(value);
}

static void test_bad_arguments(void **state)
{
    struct fixture *f = *state;
    const char *keys[] = {"a", NULL};
    bool present;
    size_t bytes;
    char c;
    FAILS(tutti_store_set(NULL, "k", "", 0), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_set(f->a, NULL, "", 0), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_set(f->a, "", "", 0), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_set(f->a, "k", NULL, 1), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_get(f->a, "k", &c, 1, NULL, 0), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_get(f->a, "k", NULL, 1, &bytes, 0), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_get(f->a, "k", &c, 1, &bytes, -1), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_check(f->a, keys, 2, &present), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_wait(f->a, keys, -1, 0), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_wait(f->a, NULL, 1, 0), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_num_keys(f->a, NULL), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_barrier(f->a, "b", 0, 0), TUTTI_ERR_INVALID_ARGUMENT);
    FAILS(tutti_store_barrier(f->a, "", 1, 0), TUTTI_ERR_INVALID_ARGUMENT);
    OK(tutti_store_set(f->a, "still", "fine", 4));
    store_fixture_check_value(f->b, "still", "fine");
}

/* ---- a forked child ----------------------------------------------------------------------------------------- */

static void test_fork(void **state)
{
    struct fixture *f = *state;
    OK(tutti_store_set(f->a, "before", "1", 1));
    pid_t child = fork();
    if (child == 0) {
        int status = tutti_store_set(f->a, "child", "1", 1);
        bool clear = status == TUTTI_ERR_STORE && strstr(error_text(), "forked child") != NULL;
        tutti_store_free(f->b);
        tutti_store_free(f->a);
        tutti_store_free(f->below);
        _exit(clear ? 0 : 1);
    }
    int result = -1;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    store_fixture_check_value(f->b, "before", "1");
}

int main(void)
{
    static const struct store_test tests[] = {
        STORE_TEST(test_set_get),        STORE_TEST(test_binary_values), STORE_TEST(test_add),
        STORE_TEST(test_compare_set),    STORE_TEST(test_delete),        STORE_TEST(test_clear),
        STORE_TEST(test_append),         STORE_TEST(test_num_requests),  STORE_TEST(test_num_keys),
        STORE_TEST(test_wait_and_check), STORE_TEST(test_multi),         STORE_TEST(test_multi_large),
        STORE_TEST(test_limits),         STORE_TEST(test_bad_arguments), STORE_TEST(test_fork),
    };
    return store_fixture_run(tests, sizeof tests / sizeof *tests);
}
