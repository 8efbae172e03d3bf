/* A futex lock that is held briefly and is rarely contended: taking it is one atomic operation and releasing it one
 * store, both inline.  A pair of pthread_mutex_lock and unlock costs two atomic operations and calls into another
 * library, which small operations would notice.
 *
 * It is the third mutex of Drepper's "Futexes Are Tricky": a thread that finds it taken marks it as slept for, and
 * sleeps.  There, release exchanges the word with 0, which tells whether any thread sleeps.  Here, release loads the
 * word and then stores 0, because an exchange would cost as much as taking the lock.  A mark that is set between the
 * load and the store is lost.  Its thread sleeps only if the kernel still finds the mark in a later system call, and
 * not the 0.  If the releasing thread loses its core just then, the sleeper's timeout ends the sleep. */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

enum { LOCK_FREE, LOCK_HELD, LOCK_SLEPT_FOR };

struct lock {
    atomic_uint state;
    atomic_uint waiting; /* threads in lock_wait */
};

static inline bool lock_try(struct lock *lock)
{
    unsigned state = LOCK_FREE;
    /* acquire: pairs with lock_give's release, so the last holder's accesses happen before this one's */
    return atomic_compare_exchange_strong_explicit(&lock->state, &state, LOCK_HELD, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Takes a lock that is held.  Sleeps, with a timeout after which it tries again. */
void lock_wait(struct lock *lock);
void lock_wake_one(struct lock *lock);

/* Tries to take a lock for as many milliseconds.  Counts as a waiter meanwhile, so that a caller that polls lets this
 * thread in.  Returns false if another thread has held it throughout. */
bool lock_try_ms(struct lock *lock, int ms);

static inline void lock_take(struct lock *lock)
{
    if (!lock_try(lock)) lock_wait(lock);
}

/* True if another thread waits for the lock: a hint. */
static inline bool lock_is_wanted(const struct lock *lock)
{
    return atomic_load_explicit(&lock->waiting, memory_order_relaxed) > 0;
}

static inline void lock_give(struct lock *lock)
{
    /* Loaded before the store, after which the lock may have been freed. */
    bool wakes = atomic_load_explicit(&lock->state, memory_order_relaxed) == LOCK_SLEPT_FOR;
    atomic_store_explicit(&lock->state, LOCK_FREE, memory_order_release); /* see lock_try */
    if (wakes) lock_wake_one(lock);
}

#endif
