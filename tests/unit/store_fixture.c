#include "store_fixture.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "redis_server.h"
#include "store/store_impl.h"

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

/* ---- a store of the test's own functions ------------------------------------------------------------------------ */

static int own_set(void *self, const char *key, const void *value, size_t bytes)
{
    return tutti_store_set(self, key, value, bytes);
}

static int own_get(void *self, const char *key, tutti_bytes *value, int64_t timeout_ms)
{
    return tutti_store_multi_get(self, &key, 1, value, timeout_ms);
}

static int own_wait(void *self, const char *const *keys, int n, int64_t timeout_ms)
{
    return tutti_store_wait(self, keys, n, timeout_ms);
}

static int own_check(void *self, const char *const *keys, int n, bool *present)
{
    return tutti_store_check(self, keys, n, present);
}

static int own_add(void *self, const char *key, int64_t delta, int64_t *value)
{
    return tutti_store_add(self, key, delta, value);
}

static int own_compare_set(void *self, const char *key, tutti_bytes expected, tutti_bytes desired, tutti_bytes *value)
{
    size_t capacity = TUTTI_STORE_VALUE_MAX;
    value->data = malloc(capacity);
    if (value->data == NULL) return TUTTI_ERR_NO_MEMORY;
    return tutti_store_compare_set(self, key, expected.data, expected.bytes, desired.data, desired.bytes, value->data,
                                   capacity, &value->bytes);
}

static int own_remove(void *self, const char *key, bool *existed)
{
    return tutti_store_delete(self, key, existed);
}

static int own_num_keys(void *self, const char *prefix, int64_t *count)
{
    return prefix[0] == '\0' ? tutti_store_num_keys(self, count) : TUTTI_ERR_UNSUPPORTED;
}

static void own_close(void *self)
{
    tutti_store_free(self);
}

const tutti_store_calls store_fixture_calls = {.set = own_set,
                                               .get = own_get,
                                               .wait = own_wait,
                                               .check = own_check,
                                               .add = own_add,
                                               .compare_set = own_compare_set,
                                               .remove = own_remove,
                                               .num_keys = own_num_keys,
                                               .close = own_close};

static int open_custom(struct fixture *f)
{
    tutti_store *memory;
    int status = tutti_store_memory(NULL, &memory);
    if (status == 0) status = tutti_store_custom("own store", &store_fixture_calls, memory, NULL, &f->a);
    f->b = status == 0 ? store_retain(f->a) : NULL;
    f->custom = true;
    return status;
}

/* ---- a redis server, one for all tests -------------------------------------------------------------------------- */

static struct redis_server server;

static void remove_server(void)
{
    redis_server_remove(&server);
}

static int open_redis(struct fixture *f)
{
    static int n;
    char url[80];
    if (server.pid == 0) {
        if (!redis_server_start(&server)) return -1;
        atexit(remove_server);
    }
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/test-%d", server.port, n++);
    int status = tutti_store_redis(url, NULL, &f->a);
    if (status == 0) status = tutti_store_redis(url, NULL, &f->b);
    return status;
}

/* ---- all kinds --------------------------------------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    int (*open)(struct fixture *f);
} kinds[] = {{"memory", open_memory}, {"prefix", open_prefix}, {"file", open_file},
             {"tcp", open_tcp},       {"redis", open_redis},   {"custom", open_custom}};

static const struct kind *kind; /* of the running tests */

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    int status = kind->open(f);
    if (status != 0) print_error("setup: %s\n", error_text());
    *state = f;
    return status;
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

int store_fixture_run(const struct store_test *tests, size_t n)
{
    int failed = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct CMUnitTest list[n];
        const char *why = kinds[k].open == open_redis ? redis_server_missing() : NULL;
        if (why != NULL) {
            print_message("skipped %s: %s\n", kinds[k].name, why);
            continue;
        }
        for (size_t i = 0; i < n; i++)
            list[i] = (struct CMUnitTest){tests[i].name, tests[i].run, setup, teardown, NULL};
        kind = &kinds[k];
        failed += _cmocka_run_group_tests(kind->name, list, n, NULL, NULL);
    }
    return failed;
}

void store_fixture_check_value(tutti_store *store, const char *key, const char *want)
{
    char buffer[256];
    size_t bytes;
    OK(tutti_store_get(store, key, buffer, sizeof buffer, &bytes, 5000));
    assert_int_equal(bytes, strlen(want));
    assert_memory_equal(buffer, want, bytes);
}

void store_fixture_sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}
