/* The limits of the tcp store: floods, slow readers, large requests, and their cost to other clients. */
#include "sanitizer.h"
#include "store_tcp.h"

#include <malloc.h>

static void test_flood(void **state)
{
    (void)state;
    setenv("TUTTI_STORE_MAX_BYTES", "4000000", 1);
    tutti_store *server = store_tcp_serve(store_tcp_token_a), *client = store_tcp_join(server, store_tcp_token_a);
    char *value = calloc(1, 1 << 20), key[32];
    int status = TUTTI_OK, n = 0;
    for (; n < 100 && status == TUTTI_OK; n++) {
        snprintf(key, sizeof key, "big/%d", n);
        status = tutti_store_set(client, key, value, 1 << 20);
    }
    FAILS(status, TUTTI_ERR_STORE);
    store_tcp_assert_says("TUTTI_STORE_MAX_BYTES");
    assert_true(n == 4);
    for (n = 0, status = TUTTI_OK; n < 100000 && status == TUTTI_OK; n++) { /* many small keys count as well */
        snprintf(key, sizeof key, "small/%d", n);
        status = tutti_store_set(client, key, "", 0);
    }
    FAILS(status, TUTTI_ERR_STORE);
    assert_true(n < 20000);
    OK(tutti_store_set(client, "big/0", "", 0)); /* shrinking frees */
    OK(tutti_store_set(client, "again", value, 1 << 19));
    tutti_store_free(client);
    tutti_store_free(server);
    free(value);
    unsetenv("TUTTI_STORE_MAX_BYTES");
}

/* Many large values become short.  The memory beyond the counted bytes is freed. */
static void test_shrunk_values(void **state)
{
    (void)state;
    enum { N = 40 };
    setenv("TUTTI_STORE_MAX_BYTES", "4000000", 1);
    tutti_store *server = store_tcp_serve(store_tcp_token_a);
    char *value = calloc(1, 2 << 20), key[32];
    memset(value, 1, 2 << 20);             /* touches the pages, so that they exist */
    struct mallinfo2 before = mallinfo2(); /* has no effect under a sanitizer */
    for (int n = 0; n < N; n++) {
        snprintf(key, sizeof key, "%d", n);
        OK(tutti_store_set(server, key, value, 2 << 20));
        OK(tutti_store_set(server, key, "short", 5));
    }
    struct mallinfo2 after = mallinfo2();
    size_t kept = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    if (kept > 8000000 && kept < SIZE_MAX / 2) fail_msg("%d short values keep %zu bytes", N, kept);
    for (int n = 0; n < N; n++) {
        char now[8] = "";
        size_t bytes = 0;
        snprintf(key, sizeof key, "%d", n);
        OK(tutti_store_get(server, key, now, sizeof now, &bytes, 20000));
        assert_true(bytes == 5 && memcmp(now, "short", 5) == 0);
    }
    tutti_store_free(server);
    free(value);
    unsetenv("TUTTI_STORE_MAX_BYTES");
}

/* Clients request much and read nothing.  The server's memory stays bounded, and it serves others. */
static void test_slow_readers(void **state)
{
    (void)state;
    enum { N = 24 };
    setenv("TUTTI_STORE_MAX_BYTES", "9000000", 1);
    tutti_store *server = store_tcp_serve(store_tcp_token_a), *client = store_tcp_join(server, store_tcp_token_a);
    char *value = calloc(1, TUTTI_STORE_VALUE_MAX);
    int fds[N];
    OK(tutti_store_set(client, "big", value, TUTTI_STORE_VALUE_MAX));
    struct store_slice key = {"big", 3}, values[2] = {{"", 0}, {"", 0}};
    struct store_request request = {.op = STORE_GET, .n_keys = 1, .keys = &key, .values = values};
    for (int i = 0; i < N; i++) {
        if (i == N / 2) { /* this reply contains the value, too */
            request.op = STORE_COMPARE_SET;
            request.n_values = 2;
        }
        struct recording recording;
        uint8_t frame[128];
        fds[i] = store_tcp_handshake(tutti_store_port(server), &recording);
        size_t bytes = wire_request_bytes(&request);
        wire_put_u32(frame, (uint32_t)(bytes + SEAL_TAG_BYTES));
        wire_put_request(frame + 4, &request, 1000);
        seal_close(&recording.out, frame + 4, bytes, frame, 4);
        store_tcp_send(fds[i], frame, 4 + bytes + SEAL_TAG_BYTES);
    }
    for (int i = 0; i < 50; i++) OK(tutti_store_add(client, "n", 1, NULL));
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (!SANITIZED) assert_true(usage.ru_maxrss < 120 << 10); /* 24 replies would be 192 MiB */
    for (int i = 0; i < N; i++) close(fds[i]);
    size_t bytes;
    OK(tutti_store_get(client, "big", value, TUTTI_STORE_VALUE_MAX, &bytes, 20000));
    assert_int_equal(bytes, TUTTI_STORE_VALUE_MAX);
    tutti_store_free(client);
    tutti_store_free(server);
    free(value);
    unsetenv("TUTTI_STORE_MAX_BYTES");
}

struct getter {
    tutti_store *client;
    int status;
    size_t bytes;
};

static void *get_big(void *argument)
{
    struct getter *getter = argument;
    char *value = malloc(TUTTI_STORE_VALUE_MAX);
    getter->status =
        tutti_store_get(getter->client, "big", value, TUTTI_STORE_VALUE_MAX, &getter->bytes, TUTTI_INFINITE);
    free(value);
    return NULL;
}

/* A request that was deferred for lack of memory continues when memory is freed, even if no other client calls. */
static void test_deferred_request_continues(void **state)
{
    (void)state;
    enum { N = 4, SIZE = 1 << 20 };
    setenv("TUTTI_STORE_MAX_BYTES", "2000000", 1);
    tutti_store *server = store_tcp_serve(store_tcp_token_a), *client = store_tcp_join(server, store_tcp_token_a);
    char *value = calloc(1, SIZE);
    struct getter getter = {.client = client};
    pthread_t thread;
    int fds[N];
    OK(tutti_store_set(client, "big", value, SIZE));
    for (int i = 0; i < N; i++) { /* half a request each, for which the server has reserved the memory of a whole one */
        struct recording recording;
        uint8_t size[4];
        fds[i] = store_tcp_handshake(tutti_store_port(server), &recording);
        wire_put_u32(size, SIZE);
        store_tcp_send(fds[i], size, sizeof size);
    }
    store_tcp_sleep_ms(200);
    assert_int_equal(pthread_create(&thread, NULL, get_big, &getter), 0);
    store_tcp_sleep_ms(200);
    for (int i = 0; i < N; i++) close(fds[i]);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    bool ended = pthread_timedjoin_np(thread, NULL, &until) == 0;
    if (!ended) OK(tutti_store_set(server, "other", "", 0)); /* any reply lets the request continue */
    if (!ended) pthread_join(thread, NULL);
    assert_true(ended);
    OK(getter.status);
    assert_int_equal(getter.bytes, SIZE);
    tutti_store_free(client);
    tutti_store_free(server);
    free(value);
    unsetenv("TUTTI_STORE_MAX_BYTES");
}

static void *compare_large(void *argument)
{
    struct getter *getter = argument;
    char *value = calloc(1, 1 << 20);
    getter->status =
        tutti_store_compare_set(getter->client, "none", value, 1 << 20, value, 1 << 20, NULL, 0, &getter->bytes);
    free(value);
    return NULL;
}

/* Requests that alone fill the server's memory are not deferred until they are gone. */
static void test_large_requests(void **state)
{
    (void)state;
    enum { N = 3 };
    setenv("TUTTI_STORE_MAX_BYTES", "4000000", 1);
    tutti_store *server = store_tcp_serve(store_tcp_token_a);
    struct getter getter[N];
    pthread_t thread[N];
    setenv("TUTTI_STORE_MAX_BYTES", "65536", 1);
    tutti_store *small = store_tcp_serve(store_tcp_token_a), *client = store_tcp_join(small, store_tcp_token_a);
    char *value = calloc(1, 40000);
    OK(tutti_store_compare_set(client, "none", value, 40000, value, 40000, NULL, 0, NULL));
    for (int i = 0; i < N; i++) {
        getter[i] = (struct getter){.client = store_tcp_join(server, store_tcp_token_a)};
        assert_int_equal(pthread_create(&thread[i], NULL, compare_large, &getter[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(thread[i], NULL);
        OK(getter[i].status);
        assert_int_equal(getter[i].bytes, 0);
        tutti_store_free(getter[i].client);
    }
    tutti_store_free(client);
    tutti_store_free(small);
    tutti_store_free(server);
    free(value);
    unsetenv("TUTTI_STORE_MAX_BYTES");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flood),          cmocka_unit_test(test_shrunk_values),
        cmocka_unit_test(test_slow_readers),   cmocka_unit_test(test_deferred_request_continues),
        cmocka_unit_test(test_large_requests),
    };
    return token_init() == TUTTI_OK ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
