/* Waiting in each kind of store, from several threads. */
#include "store_fixture.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"

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
    store_fixture_sleep_ms(50);
    OK(tutti_store_set(f->b, "other", "1", 1)); /* on the waiting handle */
    store_fixture_check_value(f->b, "other", "1");
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
    store_fixture_check_value(f->a, "after", "ok");
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
    store_fixture_check_value(f->a, "sum", "800");
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
        /* nobody leaves round i before all have arrived */
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

int main(void)
{
    static const struct store_test tests[] = {
        STORE_TEST(test_get_waits_and_holds_up_nobody),
        STORE_TEST(test_timeouts),
        STORE_TEST(test_adds_from_threads),
        STORE_TEST(test_barrier),
    };
    return store_fixture_run(tests, sizeof tests / sizeof *tests);
}
