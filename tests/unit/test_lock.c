/* The engine's lock: one holder at a time, and every waiter gets it. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/lock.h"

enum { THREADS = 4, ROUNDS = 100000, LONG_US = 120000 };

static struct lock lock;
static long count; /* protected by the lock */

static void *add(void *argument)
{
    (void)argument;
    for (int i = 0; i < ROUNDS; i++) {
        lock_take(&lock);
        long seen = count;
        if (i % 1000 == 0) sched_yield(); /* other threads arrive while the lock is held */
        count = seen + 1;
        lock_give(&lock);
    }
    return NULL;
}

static void test_one_at_a_time(void **state)
{
    pthread_t thread[THREADS];
    (void)state;
    count = 0;
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, add, NULL), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    assert_int_equal(count, (long)THREADS * ROUNDS);
    assert_false(lock_is_wanted(&lock));
}

static void *take_once(void *argument)
{
    lock_take(argument);
    count++;
    lock_give(argument);
    return NULL;
}

/* Waiters are counted, sleep more than once, and all get the lock. */
static void test_waits(void **state)
{
    pthread_t thread[THREADS];
    (void)state;
    count = 0;
    lock_take(&lock);
    assert_false(lock_try(&lock));
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, take_once, &lock), 0);
    while (atomic_load(&lock.waiting) < THREADS) usleep(100);
    usleep(LONG_US);
    assert_true(lock_is_wanted(&lock));
    assert_int_equal(count, 0);
    lock_give(&lock);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    assert_int_equal(count, THREADS);
    assert_true(lock_try(&lock));
    lock_give(&lock);
}

static atomic_bool has_it;

/* Holds the lock until another thread wants it. */
static void *hold_until_wanted(void *argument)
{
    lock_take(argument);
    atomic_store(&has_it, true);
    while (!lock_is_wanted(argument)) sched_yield();
    lock_give(argument);
    return NULL;
}

/* A thread that only tries is counted as a waiter while it does.  It gives up in the end. */
static void test_tries(void **state)
{
    pthread_t thread;
    (void)state;
    assert_true(lock_try_ms(&lock, 0));
    assert_false(lock_try_ms(&lock, 2));
    assert_false(lock_is_wanted(&lock));
    lock_give(&lock);
    assert_int_equal(pthread_create(&thread, NULL, hold_until_wanted, &lock), 0);
    while (!atomic_load(&has_it)) sched_yield();
    assert_true(lock_try_ms(&lock, 60000));
    pthread_join(thread, NULL);
    lock_give(&lock);
    assert_false(lock_is_wanted(&lock));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_at_a_time), cmocka_unit_test(test_waits),
                                       cmocka_unit_test(test_tries)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
