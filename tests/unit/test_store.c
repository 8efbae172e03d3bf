/* Every operation on each kind of store: written once, run per kind.  Each test has a fresh store and a second handle
 * on it, as another rank would. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/store_impl.h"

struct fixture {
    tutti_store *a, *b; /* two handles on one store */
    tutti_store *below;
    char path[64];
};

static int open_memory(struct fixture *f)
{
    int status = tutti_store_memory(NULL, &f->a);
    f->b = status == 0 ? store_retain(f->a) : NULL;
    return status;
}

static int open_prefix(struct fixture *f)
{
    int status = tutti_store_memory(NULL, &f->below);
    if (status == 0) status = tutti_store_set(f->below, "outside", "x", 1);
    if (status == 0) status = tutti_store_prefix(f->below, "part", &f->a);
    if (status == 0) status = tutti_store_prefix(f->below, "part", &f->b);
    return status;
}

static int open_file(struct fixture *f)
{
    snprintf(f->path, sizeof f->path, "/tmp/test_store.%d.XXXXXX", (int)getpid());
    int fd = mkstemp(f->path);
    if (fd < 0) return -1;
    close(fd);
    int status = tutti_store_file(f->path, NULL, &f->a);
    if (status == 0) status = tutti_store_file(f->path, NULL, &f->b);
    return status;
}

static int open_tcp(struct fixture *f)
{
    int status = tutti_store_tcp("127.0.0.1", 0, &(tutti_store_opts){.server = true}, &f->a);
    if (status == 0) status = tutti_store_tcp("127.0.0.1", tutti_store_port(f->a), NULL, &f->b);
    return status;
}

static int setup(void **state, int (*open)(struct fixture *))
{
    struct fixture *f = calloc(1, sizeof *f);
    int status = open(f);
    if (status != 0) print_error("setup: %s\n", error_text());
    *state = f;
    return status;
}

static int setup_memory(void **state)
{
    return setup(state, open_memory);
}

static int setup_prefix(void **state)
{
    return setup(state, open_prefix);
}

static int setup_file(void **state)
{
    return setup(state, open_file);
}

static int setup_tcp(void **state)
{
    return setup(state, open_tcp);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    tutti_store_free(f->b);
    tutti_store_free(f->a);
    tutti_store_free(f->below);
    if (f->path[0] != '\0') unlink(f->path);
    free(f);
    return 0;
}

#define OK(call) assert_int_equal_text(call, TUTTI_OK, #call, __LINE__)
#define FAILS(call, status) assert_int_equal_text(call, status, #call, __LINE__)

static void assert_int_equal_text(int got, int want, const char *call, int line)
{
    if (got != want)
        fail_msg("line %d: %s is %s, not %s: %s", line, call, error_name(got), error_name(want), error_text());
}

static void assert_value(tutti_store *store, const char *key, const char *want)
{
    char buffer[256];
    size_t bytes;
    OK(tutti_store_get(store, key, buffer, sizeof buffer, &bytes, 5000));
    assert_int_equal(bytes, strlen(want));
    assert_memory_equal(buffer, want, bytes);
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* ---- one key ------------------------------------------------------------------------------------------------ */

static void test_set_get(void **state)
{
    struct fixture *f = *state;
    char buffer[4] = "zzz";
    size_t bytes;
    OK(tutti_store_set(f->a, "k", "first", 5));
    assert_value(f->b, "k", "first");
    OK(tutti_store_set(f->b, "k", "2", 1));
    assert_value(f->a, "k", "2");
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
    assert_value(f->a, "n", "-2");
    OK(tutti_store_set(f->a, "n", "9223372036854775807", 19));
    OK(tutti_store_add(f->a, "n", 1, &value));
    assert_true(value == INT64_MIN);
    OK(tutti_store_add(f->a, "n", 0, NULL));
    OK(tutti_store_set(f->a, "n", "12x", 3));
    FAILS(tutti_store_add(f->b, "n", 1, &value), TUTTI_ERR_STORE);
    assert_value(f->a, "n", "12x");
}

static void test_compare_set(void **state)
{
    struct fixture *f = *state;
    char buffer[8] = "";
    size_t bytes = 99;
    OK(tutti_store_compare_set(f->a, "c", "old", 3, "new", 3, buffer, sizeof buffer, &bytes));
    assert_int_equal(bytes, 0); /* absent, and nothing was expected to be: stays absent */
    FAILS(tutti_store_get(f->a, "c", buffer, sizeof buffer, &bytes, 0), TUTTI_ERR_TIMEOUT);
    OK(tutti_store_compare_set(f->a, "c", "", 0, "one", 3, buffer, sizeof buffer, &bytes));
    assert_int_equal(bytes, 3);
    assert_memory_equal(buffer, "one", 3);
    OK(tutti_store_compare_set(f->b, "c", "", 0, "two", 3, buffer, sizeof buffer, &bytes));
    assert_memory_equal(buffer, "one", 3);
    OK(tutti_store_compare_set(f->b, "c", "one", 3, "twelve", 6, buffer, 2, &bytes));
    assert_int_equal(bytes, 6);
    assert_memory_equal(buffer, "one", 3); /* too small a buffer: untouched, and no error */
    assert_value(f->a, "c", "twelve");
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
    assert_value(f->b, "log", "one,two,three");
}

/* Each call is one request, whoever makes it and however long it waits. */
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

/* More than one frame holds: asked for and sent in parts. */
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
    assert_value(f->b, "still", "fine");
}

/* ---- waiting across threads --------------------------------------------------------------------------------- */

struct waiter {
    tutti_store *store;
    const char *key;
    int64_t timeout_ms;
    int status;
    char value[16];
    char text[ERROR_TEXT_MAX];
};

static void *waiter_run(void *argument)
{
    struct waiter *waiter = argument;
    size_t bytes = 0;
    waiter->status = tutti_store_get(waiter->store, waiter->key, waiter->value, sizeof waiter->value - 1, &bytes,
                                     waiter->timeout_ms);
    strcpy(waiter->text, error_text());
    return NULL;
}

static void test_get_waits_and_holds_up_nobody(void **state)
{
    enum { N = 6 };
    struct fixture *f = *state;
    struct waiter waiters[N] = {0};
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        waiters[i] = (struct waiter){.store = f->b, .key = "late", .timeout_ms = TUTTI_DEFAULT_TIMEOUT};
        pthread_create(&threads[i], NULL, waiter_run, &waiters[i]);
    }
    sleep_ms(50);
    OK(tutti_store_set(f->b, "other", "1", 1)); /* the same handle, while the others wait */
    assert_value(f->b, "other", "1");
    OK(tutti_store_set(f->a, "late", "here", 4));
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(waiters[i].status, TUTTI_OK);
        assert_string_equal(waiters[i].value, "here");
    }
}

static void test_timeouts(void **state)
{
    struct fixture *f = *state;
    size_t bytes;
    char c;
    FAILS(tutti_store_get(f->a, "never", &c, 1, &bytes, 0), TUTTI_ERR_TIMEOUT);
    int64_t begun = clock_now_ns();
    FAILS(tutti_store_get(f->a, "never", &c, 1, &bytes, 100), TUTTI_ERR_TIMEOUT);
    int64_t took = clock_now_ns() - begun;
    assert_true(took >= 90000000 && took < 5000000000);
    assert_non_null(strstr(error_text(), "never"));
    OK(tutti_store_set(f->b, "after", "ok", 2));
    assert_value(f->a, "after", "ok");
}

struct adder {
    tutti_store *store;
    int status;
};

static void *adder_run(void *argument)
{
    struct adder *adder = argument;
    for (int i = 0; i < 200 && adder->status == 0; i++) adder->status = tutti_store_add(adder->store, "sum", 1, NULL);
    return NULL;
}

static void test_adds_from_threads(void **state)
{
    enum { N = 4 };
    struct fixture *f = *state;
    struct adder adders[N] = {0};
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        adders[i].store = i % 2 ? f->a : f->b;
        pthread_create(&threads[i], NULL, adder_run, &adders[i]);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(adders[i].status, TUTTI_OK);
    }
    assert_value(f->a, "sum", "800");
}

/* ---- barrier ------------------------------------------------------------------------------------------------ */

struct barrier_rank {
    tutti_store *store;
    atomic_int *inside;
    int world_size, rounds, status;
};

static void *barrier_run(void *argument)
{
    struct barrier_rank *rank = argument;
    for (int i = 0; i < rank->rounds && rank->status == 0; i++) {
        atomic_fetch_add(rank->inside, 1);
        rank->status = tutti_store_barrier(rank->store, "b", rank->world_size, 20000);
        /* none leaves round i before all have entered it */
        if (atomic_load(rank->inside) < (i + 1) * rank->world_size) rank->status = 1;
    }
    return NULL;
}

static void test_barrier(void **state)
{
    enum { N = 4, ROUNDS = 10 };
    struct fixture *f = *state;
    struct barrier_rank ranks[N];
    pthread_t threads[N];
    atomic_int inside = 0;
    int64_t count;
    for (int i = 0; i < N; i++) {
        ranks[i] = (struct barrier_rank){i % 2 ? f->a : f->b, &inside, N, ROUNDS, 0};
        pthread_create(&threads[i], NULL, barrier_run, &ranks[i]);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(ranks[i].status, 0);
    }
    OK(tutti_store_num_keys(f->a, &count));
    assert_int_equal(count, 2);
    OK(tutti_store_barrier(f->a, "alone", 1, 0));
    FAILS(tutti_store_barrier(f->a, "few", 3, 50), TUTTI_ERR_TIMEOUT);
    assert_non_null(strstr(error_text(), "1 of 3"));
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
    assert_value(f->b, "before", "1");
}

#define PER_KIND(test, kind) cmocka_unit_test_setup_teardown(test, setup_##kind, teardown)
#define ALL_TESTS(kind)                                                                                                \
    {                                                                                                                  \
        PER_KIND(test_set_get, kind), PER_KIND(test_binary_values, kind), PER_KIND(test_add, kind),                    \
            PER_KIND(test_compare_set, kind), PER_KIND(test_delete, kind), PER_KIND(test_clear, kind),                 \
            PER_KIND(test_append, kind), PER_KIND(test_num_keys, kind), PER_KIND(test_num_requests, kind),             \
            PER_KIND(test_wait_and_check, kind), PER_KIND(test_multi, kind), PER_KIND(test_multi_large, kind),         \
            PER_KIND(test_limits, kind), PER_KIND(test_bad_arguments, kind),                                           \
            PER_KIND(test_get_waits_and_holds_up_nobody, kind), PER_KIND(test_timeouts, kind),                         \
            PER_KIND(test_adds_from_threads, kind), PER_KIND(test_barrier, kind), PER_KIND(test_fork, kind),           \
    }

int main(void)
{
    const struct CMUnitTest memory[] = ALL_TESTS(memory), prefix[] = ALL_TESTS(prefix), file[] = ALL_TESTS(file),
                            tcp[] = ALL_TESTS(tcp);
    int failed = cmocka_run_group_tests_name("memory", memory, NULL, NULL);
    failed += cmocka_run_group_tests_name("prefix", prefix, NULL, NULL);
    failed += cmocka_run_group_tests_name("file", file, NULL, NULL);
    failed += cmocka_run_group_tests_name("tcp", tcp, NULL, NULL);
    return failed;
}
