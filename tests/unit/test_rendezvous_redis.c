/* The init method redis://: ranks that meet, fail to meet, meet again, and join late. */
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "redis_server.h"
#include "rendezvous_ranks.h"
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

static int open_store(tutti_store **store)
{
    char url[80];
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/job", server.port);
    return tutti_store_redis(url, NULL, store);
}

static void assert_says(const char *part)
{
    if (strstr(error_text(), part) == NULL) fail_msg("no \"%s\" in: %s", part, error_text());
}

static void test_init_method(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    char url[160], environments[RANKS][256];
    start_server((struct redis_server){.password = "secret"});
    snprintf(url, sizeof url, "redis://:secret@127.0.0.1:%u", server.port);
    struct rendezvous_args args = {.init_method = url, .rank = -1, .world_size = -1, .timeout_ms = 20000};
    for (int i = 0; i < RANKS; i++)
        snprintf(environments[i], sizeof environments[i], "RANK=%d WORLD_SIZE=3 TUTTI_JOB_ID=job", i);
    rendezvous_ranks_run(RANKS, environments, &args);
    for (int i = 0; i < RANKS; i++) rendezvous_ranks_expect_joined(i, i, RANKS);
    assert_string_equal(redis_server_ask(&server, "DBSIZE"), ":0");
    snprintf(environments[0], sizeof environments[0], "RANK=0 WORLD_SIZE=1");
    rendezvous_ranks_run(1, environments, &args);
    rendezvous_ranks_expect(0, TUTTI_ERR_INVALID_ARGUMENT, "there is no job; write redis://host:port/JOB");
    assert_null(strstr(rendezvous_results[0].text, "secret"));
}

/* Ranks that are killed leave their keys: the next start under the same name is refused, not confused. */
static void test_left_over(void **state)
{
    (void)state;
    char url[160];
    tutti_store *store = NULL;
    struct rendezvous first, second;
    start_server((struct redis_server){0});
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/job?rank=0&world_size=1", server.port);
    OK(open_store(&store));
    struct rendezvous_args args = {.init_method = url, .rank = -1, .world_size = -1, .timeout_ms = 5000};
    OK(rendezvous_join(&args, &first));
    OK(rendezvous_join(&args, &second)); /* the next world of this process has keys of its own */
    OK(tutti_store_set(store, "start/0/world/2/tutti/world/rank/0", "host:1 0", 8));
    struct rendezvous third;
    FAILS(rendezvous_join(&args, &third), TUTTI_ERR_MISMATCH);
    assert_says("rank 0 already joined from host:1; if that was an earlier run, give the job another name");
    rendezvous_leave(&first);
    rendezvous_leave(&second);
    tutti_store_free(store);
}

/* A rendezvous that fails leaves no keys, so the ranks can try again under the same name. */
static void test_failed_rendezvous(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    char url[160], environments[RANKS][256];
    start_server((struct redis_server){0});
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/job", server.port);
    struct rendezvous_args args = {.init_method = url, .rank = -1, .world_size = -1, .timeout_ms = 300};
    for (int i = 0; i < RANKS; i++) snprintf(environments[i], sizeof environments[i], "RANK=%d WORLD_SIZE=3", i);
    rendezvous_ranks_run(RANKS - 1, environments, &args);
    for (int i = 0; i < RANKS - 1; i++) rendezvous_ranks_expect(i, TUTTI_ERR_TIMEOUT, "joined 2 of 3, missing 2");
    assert_string_equal(redis_server_ask(&server, "DBSIZE"), ":0");
    args.timeout_ms = 20000;
    rendezvous_ranks_run(RANKS, environments, &args);
    for (int i = 0; i < RANKS; i++) rendezvous_ranks_expect_joined(i, i, RANKS);
}

/* A rank that tries again at once waits until the keys of the failed attempt are gone. */
static void test_failed_before(void **state)
{
    (void)state;
    char url[160];
    tutti_store *store;
    struct rendezvous world;
    start_server((struct redis_server){0});
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/job?rank=0&world_size=1", server.port);
    struct rendezvous_args args = {.init_method = url, .rank = -1, .world_size = -1, .timeout_ms = 100};
    OK(open_store(&store));
    OK(tutti_store_set(store, "start/0/world/0/tutti/world/rank/0", "host:1 0", 8));
    OK(tutti_store_set(store, "start/0/world/0/tutti/world/verdict", "-5 text", 7));
    int64_t begun = clock_now_ns();
    FAILS(rendezvous_join(&args, &world), TUTTI_ERR_MISMATCH);
    assert_true(clock_now_ns() - begun >= 100000000);
    tutti_store_free(store);
}

/* A newcomer finds the world that the ranks are in now. */
static void test_newcomer(void **state)
{
    (void)state;
    char url[160], value[8];
    size_t bytes = 0;
    struct rendezvous first, second, late;
    start_server((struct redis_server){0});
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/job?rank=0&world_size=1", server.port);
    struct rendezvous_args args = {.init_method = url, .rank = -1, .world_size = -1, .timeout_ms = 5000};
    OK(rendezvous_join(&args, &first));
    rendezvous_leave(&first);
    OK(rendezvous_join(&args, &second));
    OK(tutti_store_set(second.store, "key", "second", 6));
    OK(rendezvous_join_late(&args, &late));
    assert_int_equal(late.world_size, 1);
    OK(tutti_store_get(late.store, "key", value, sizeof value, &bytes, 0));
    assert_int_equal(bytes, 6);
    rendezvous_regrouped(&second, 2, 1); /* both leave as members of a later generation: the last one clears */
    rendezvous_regrouped(&late, 2, 1);
    rendezvous_leave(&late);
    assert_true(atoi(redis_server_ask(&server, "HLEN tutti:{job}") + 1) > 1);
    rendezvous_leave(&second);
    assert_string_equal(redis_server_ask(&server, "HLEN tutti:{job}"), ":1"); /* which world is the present one */
}

/* A rank that leaves does not wait for a server that is gone. */
static void test_leave_without_server(void **state)
{
    (void)state;
    char url[160];
    struct rendezvous world;
    start_server((struct redis_server){0});
    snprintf(url, sizeof url, "redis://127.0.0.1:%u/job?rank=0&world_size=1", server.port);
    struct rendezvous_args args = {.init_method = url, .rank = -1, .world_size = -1, .timeout_ms = 20000};
    OK(rendezvous_join(&args, &world));
    redis_server_end(&server, SIGKILL);
    int64_t begun = clock_now_ns();
    rendezvous_leave(&world);
    assert_true(clock_now_ns() - begun < 10000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_init_method, stop_server),
        cmocka_unit_test_teardown(test_failed_rendezvous, stop_server),
        cmocka_unit_test_teardown(test_failed_before, stop_server),
        cmocka_unit_test_teardown(test_left_over, stop_server),
        cmocka_unit_test_teardown(test_newcomer, stop_server),
        cmocka_unit_test_teardown(test_leave_without_server, stop_server),
    };
    const char *why = redis_server_missing();
    if (why != NULL) {
        print_message("skipped: %s\n", why);
        return 77;
    }
    return cmocka_run_group_tests(tests, rendezvous_ranks_setup, NULL);
}
