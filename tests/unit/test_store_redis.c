/* The store on a redis server: restarts, lost connections, passwords and jobs.  What all kinds of stores do, test_store
 * and test_store_waits test. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "redis_server.h"
#include "store/redis_url.h"
#include "store_check.h"
#include "store_fixture.h"

static struct redis_server server; /* of the running test */

static int stop_server(void **state)
{
    (void)state;
    redis_server_remove(&server);
    return 0;
}

static void start_server(struct redis_server wanted)
{
    server = wanted;
    assert_true(redis_server_start(&server));
}

static const char *url_of(const char *secrets, const char *job)
{
    static char url[200];
    snprintf(url, sizeof url, "redis://%s127.0.0.1:%u/%s", secrets, server.port, job);
    return url;
}

static int open_store(const char *secrets, const char *job, int64_t timeout_ms, tutti_store **store)
{
    return tutti_store_redis(url_of(secrets, job), &(tutti_store_opts){.timeout_ms = timeout_ms}, store);
}

static void assert_says(const char *part)
{
    if (strstr(error_text(), part) == NULL) fail_msg("no \"%s\" in: %s", part, error_text());
}

/* ---- URLs ---------------------------------------------------------------------------------------------------- */

static void test_urls(void **state)
{
    (void)state;
    struct redis_url url;
    char text[REDIS_URL_TEXT_MAX];
    OK(redis_url_parse("redis://host/job", NULL, &url));
    assert_string_equal(url.host, "host");
    assert_int_equal(url.port, 6379);
    assert_string_equal(url.job, "job");
    OK(redis_url_parse("redis://me:p%40ss%3aw@[::1]:70/a/b?rank=1", NULL, &url));
    assert_string_equal(url.user, "me");
    assert_string_equal(url.password, "p@ss:w");
    assert_string_equal(url.host, "::1");
    assert_int_equal(url.port, 70);
    assert_string_equal(url.job, "a/b");
    OK(redis_url_parse("redis://:secret@h", "from-env", &url));
    assert_string_equal(url.job, "from-env");
    static const char *const bad[] = {"redis://",
                                      "redis://:secret@/j",
                                      "redis://:secret@h:0/j",
                                      "redis://:secret@h:70000/j",
                                      "tcp://:secret@h",
                                      "redis://:secret%zz@h/j",
                                      "redis://:secret%2@h/j",
                                      "redis://:secret%00@h/j",
                                      "redis://:secret@h",
                                      "redis://:secret@h/a b",
                                      "redis://:secret@h/{a}",
                                      "redis://:secret@[::1/j",
                                      "redis://:se/secret@h/j",
                                      "redis://:secret@a:b:c/j",
                                      "rediss://:secret@h/j",
                                      "redis:/:secret@h/j",
                                      ":secret@h://j",
                                      "redis://:secret@[::1]x/j"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (redis_url_parse(bad[i], NULL, &url) != TUTTI_ERR_INVALID_ARGUMENT) fail_msg("accepted: %s", bad[i]);
        if (strstr(error_text(), "secret") != NULL) fail_msg("tells the secret: %s", error_text());
    }
    assert_string_equal(redis_url_hide("redis://u:a/b@c@h:1/j", text), "redis://***@h:1/j");
    assert_string_equal(redis_url_hide("tcp://h:1", text), "tcp://h:1");
}

/* ---- restarts ------------------------------------------------------------------------------------------------ */

struct adder {
    tutti_store *store;
    atomic_bool stop;
    int64_t n, last;
    int status;
};

static void *add_until_stopped(void *argument)
{
    struct adder *adder = argument;
    while (!atomic_load(&adder->stop) && adder->status == TUTTI_OK) {
        adder->status = tutti_store_add(adder->store, "sum", 1, &adder->last);
        adder->n += adder->status == TUTTI_OK;
        if (adder->status != TUTTI_OK) print_error("%s\n", error_text());
    }
    return NULL;
}

static void start_adder(struct adder *adder, pthread_t *thread)
{
    OK(open_store("", "job", 20000, &adder->store));
    assert_int_equal(pthread_create(thread, NULL, add_until_stopped, adder), 0);
}

/* Returns how many additions succeeded. */
static int64_t end_adder(struct adder *adder, pthread_t thread)
{
    atomic_store(&adder->stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(adder->status, TUTTI_OK);
    tutti_store_free(adder->store);
    return adder->n;
}

/* Connections end at any moment, and each addition is done once. */
static void test_lost_connections(void **state)
{
    (void)state;
    enum { ADDERS = 2, CUTS = 60 };
    struct adder adders[ADDERS] = {0};
    pthread_t threads[ADDERS];
    int64_t sum = 0, want = 0;
    tutti_store *store;
    start_server((struct redis_server){0});
    for (int i = 0; i < ADDERS; i++) start_adder(&adders[i], &threads[i]);
    for (int i = 0; i < CUTS; i++) {
        redis_server_ask(&server, "CLIENT KILL TYPE normal");
        store_fixture_sleep_ms(5);
    }
    for (int i = 0; i < ADDERS; i++) want += end_adder(&adders[i], threads[i]);
    OK(open_store("", "job", 5000, &store));
    OK(tutti_store_add(store, "sum", 0, &sum));
    assert_true(want > 0);
    assert_int_equal(sum, want);
    tutti_store_free(store);
}

/* A write of a call that has given up arrives after a later write of the same connection: it changes nothing. */
static void test_late_write(void **state)
{
    (void)state;
    tutti_store *store;
    start_server((struct redis_server){0});
    OK(open_store("", "job", 5000, &store));
    OK(tutti_store_set(store, "key", "later", 5));
    redis_server_ask(&server,
                     "EVAL \"local c = KEYS[1] return redis.call('HSET', c, redis.call('HKEYS', c)[1], '9 0')\""
                     " 1 tutti:{job}:calls"); /* the write of number 9 is done */
    FAILS(tutti_store_set(store, "key", "late", 4), TUTTI_ERR_STORE);
    store_fixture_check_value(store, "key", "later");
    tutti_store_free(store);
}

struct waiter {
    tutti_store *store;
    int status;
    char value[16];
};

static void *wait_for_late(void *argument)
{
    struct waiter *waiter = argument;
    size_t bytes;
    waiter->status = tutti_store_get(waiter->store, "late", waiter->value, 15, &bytes, 20000);
    if (waiter->status != TUTTI_OK) print_error("%s\n", error_text());
    return NULL;
}

/* A server that keeps its keys is killed and comes back, while ranks add and wait. */
static void test_restart(void **state)
{
    (void)state;
    struct adder adder = {0};
    struct waiter waiter = {0};
    pthread_t adding, waiting;
    int64_t sum = 0;
    tutti_store *store;
    start_server((struct redis_server){.keeps = true});
    OK(open_store("", "job", 20000, &store));
    OK(tutti_store_set(store, "before", "kept", 4));
    OK(open_store("", "job", 20000, &waiter.store));
    pthread_create(&waiting, NULL, wait_for_late, &waiter);
    start_adder(&adder, &adding);
    for (int i = 0; i < 2; i++) {
        store_fixture_sleep_ms(60);
        redis_server_end(&server, i == 0 ? SIGKILL : SIGTERM);
        store_fixture_sleep_ms(60);
        assert_true(redis_server_start(&server));
    }
    store_fixture_check_value(store, "before", "kept");
    int64_t want = end_adder(&adder, adding);
    OK(tutti_store_add(store, "sum", 0, &sum));
    assert_int_equal(sum, want);
    OK(tutti_store_set(store, "late", "here", 4));
    pthread_join(waiting, NULL);
    assert_int_equal(waiter.status, TUTTI_OK);
    assert_string_equal(waiter.value, "here");
    tutti_store_free(waiter.store);
    tutti_store_free(store);
}

/* A server that loses its keys in a restart is reported, in every later call. */
static void test_lost_data(void **state)
{
    (void)state;
    tutti_store *store;
    char value[8];
    size_t bytes;
    start_server((struct redis_server){0});
    OK(open_store("", "job", 20000, &store));
    OK(tutti_store_set(store, "key", "value", 5));
    redis_server_end(&server, SIGTERM);
    assert_true(redis_server_start(&server));
    FAILS(tutti_store_get(store, "key", value, sizeof value, &bytes, 5000), TUTTI_ERR_STORE);
    assert_says("the server has lost all keys of job job: it has restarted without persistence");
    FAILS(tutti_store_set(store, "key", "value", 5), TUTTI_ERR_STORE);
    assert_says("has lost all keys");
    tutti_store_free(store);
    OK(open_store("", "job", 20000, &store)); /* another start of the job */
    OK(tutti_store_set(store, "key", "value", 5));
    redis_server_ask(&server, "FLUSHALL");
    FAILS(tutti_store_add(store, "n", 1, NULL), TUTTI_ERR_STORE);
    assert_says("has lost all keys of job job: they were deleted or have expired");
    tutti_store_free(store);
}

/* A server that does not come back ends calls at their timeout. */
static void test_gone(void **state)
{
    (void)state;
    tutti_store *store;
    char value[8];
    size_t bytes;
    start_server((struct redis_server){0});
    OK(open_store("", "job", 300, &store));
    redis_server_end(&server, SIGKILL);
    FAILS(tutti_store_set(store, "key", "value", 5), TUTTI_ERR_STORE);
    assert_says("cannot connect");
    int64_t begun = clock_now_ns();
    FAILS(tutti_store_get(store, "key", value, sizeof value, &bytes, 0), TUTTI_ERR_STORE);
    assert_true(clock_now_ns() - begun < 5000000000);
    tutti_store_free(store);
    FAILS(open_store("", "job", 100, &store), TUTTI_ERR_STORE);
    assert_says("gave up after 100 ms");
    assert_null(store);
}

/* Answers the first request with a text that does not end. */
static void *answer_without_end(void *argument)
{
    static const char zeros[1 << 16];
    int fd = accept(*(int *)argument, NULL, NULL);
    char request[4096];
    ssize_t bytes = recv(fd, request, sizeof request, 0);
    if (bytes > 0) bytes = send(fd, "$60000000\r\n", 11, MSG_NOSIGNAL);
    for (int i = 0; i < 1000 && bytes > 0; i++) bytes = send(fd, zeros, sizeof zeros, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

static void test_reply_without_end(void **state)
{
    (void)state;
    tutti_store *store;
    pthread_t thread;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, bytes), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    server = (struct redis_server){.port = ntohs(address.sin_port)};
    pthread_create(&thread, NULL, answer_without_end, &fd);
    FAILS(open_store("", "job", 5000, &store), TUTTI_ERR_STORE);
    assert_says("a reply has more than 25165824 bytes");
    pthread_join(thread, NULL);
    close(fd);
}

/* ---- passwords and jobs -------------------------------------------------------------------------------------- */

static void test_password(void **state)
{
    (void)state;
    tutti_store *store;
    start_server((struct redis_server){.password = "se@cret"});
    FAILS(open_store("", "job", 5000, &store), TUTTI_ERR_AUTH);
    assert_says("wants a password");
    FAILS(open_store(":hush%40hush@", "job", 5000, &store), TUTTI_ERR_AUTH);
    assert_says("refused the user or password");
    assert_null(strstr(error_text(), "hush"));
    OK(open_store(":se%40cret@", "job", 5000, &store));
    OK(tutti_store_set(store, "key", "value", 5));
    tutti_store_free(store);
    setenv("TUTTI_REDIS_PASSWORD", "se@cret", 1);
    int status = open_store("default@", "job", 5000, &store);
    unsetenv("TUTTI_REDIS_PASSWORD");
    assert_int_equal(status, TUTTI_OK);
    store_fixture_check_value(store, "key", "value");
    tutti_store_free(store);
}

/* A server that has too many clients is asked again, and not taken for one that refuses the password. */
static void test_full_server(void **state)
{
    (void)state;
    tutti_store *one, *two;
    start_server((struct redis_server){.password = "secret"});
    OK(open_store(":secret@", "job", 5000, &one));
    assert_string_equal(redis_server_ask(&server, "CONFIG SET maxclients 1"), "+OK");
    FAILS(open_store(":secret@", "job", 300, &two), TUTTI_ERR_STORE);
    tutti_store_free(one);
    OK(open_store(":secret@", "job", 5000, &two));
    tutti_store_free(two);
}

/* Jobs do not see each other's keys, which expire, and a store that is closed leaves no record of itself. */
static void test_jobs(void **state)
{
    (void)state;
    tutti_store *one, *two;
    int64_t n = -1;
    start_server((struct redis_server){0});
    OK(open_store("", "one", 5000, &one));
    setenv("TUTTI_JOB_ID", "two", 1);
    int status = open_store("", "", 5000, &two);
    unsetenv("TUTTI_JOB_ID");
    assert_int_equal(status, TUTTI_OK);
    int fd = redis_server_subscribe(&server, "tutti:{one}:key"); /* as a call that waits for the key does */
    OK(tutti_store_set(one, "key", "value", 5));
    assert_true(redis_server_hears(fd));
    close(fd);
    OK(tutti_store_num_keys(two, &n));
    assert_int_equal(n, 0);
    assert_true(atoi(redis_server_ask(&server, "TTL tutti:{one}") + 1) > 6 * 24 * 3600);
    assert_true(atoi(redis_server_ask(&server, "TTL tutti:{one}:calls") + 1) > 6 * 24 * 3600);
    assert_true(atoi(redis_server_ask(&server, "TTL tutti:{two}:calls") + 1) > 6 * 24 * 3600);
    OK(tutti_store_delete(one, "key", NULL));
    tutti_store_free(one);
    tutti_store_free(two);
    assert_string_equal(redis_server_ask(&server, "DBSIZE"), ":0");
}

/* A value of another program may be larger than any of Tutti's. */
static void test_foreign_value(void **state)
{
    (void)state;
    tutti_store *store;
    char value[8];
    size_t bytes;
    start_server((struct redis_server){0});
    OK(open_store("", "job", 5000, &store));
    redis_server_ask(&server,
                     "EVAL \"return redis.call('HSET', KEYS[1], 'key', string.rep('x', 9000000))\" 1 tutti:{job}");
    FAILS(tutti_store_get(store, "key", value, sizeof value, &bytes, 1000), TUTTI_ERR_STORE);
    assert_says("the value has 9000000 bytes, more than any of Tutti's");
    FAILS(tutti_store_compare_set(store, "key", "", 0, "x", 1, value, sizeof value, &bytes), TUTTI_ERR_STORE);
    assert_says("another program uses the keys of job job");
    tutti_store_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls),
        cmocka_unit_test_teardown(test_lost_connections, stop_server),
        cmocka_unit_test_teardown(test_late_write, stop_server),
        cmocka_unit_test_teardown(test_restart, stop_server),
        cmocka_unit_test_teardown(test_lost_data, stop_server),
        cmocka_unit_test_teardown(test_gone, stop_server),
        cmocka_unit_test_teardown(test_reply_without_end, stop_server),
        cmocka_unit_test_teardown(test_password, stop_server),
        cmocka_unit_test_teardown(test_full_server, stop_server),
        cmocka_unit_test_teardown(test_jobs, stop_server),
        cmocka_unit_test_teardown(test_foreign_value, stop_server),
    };
    const char *why = redis_server_missing();
    if (why != NULL) {
        print_message("skipped: %s\n", why);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
