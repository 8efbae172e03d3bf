/* A lock for what is held for moments, by one thread nearly always: taking it is one atomic operation and giving it
 * back a store, both in line.  (pthread_mutex_lock and unlock are two atomic operations and 80 instructions in other
 * libraries, a tenth of a small operation.)
 *
 * Who finds it taken counts itself among the waiting and sleeps, for a moment at a time.  Who gives it back looks for
 * any before it does so, as afterwards the lock may be gone, and wakes one.  A thread that comes between that look and
 * the store is not seen; it finds the lock free when its nap ends.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

struct lock {
    atomic_uint held;    /* 0 or 1 */
    atomic_uint waiting; /* threads that want it */
};

static inline bool lock_try(struct lock *lock)
{
    unsigned free = 0;
    /* acquire: what its last holder did comes before what this one does */
    return atomic_compare_exchange_strong_explicit(&lock->held, &free, 1, memory_order_acquire, memory_order_relaxed);
}

void lock_wait(struct lock *lock);
void lock_wake_one(struct lock *lock);

static inline void lock_take(struct lock *lock)
{
    if (!lock_try(lock)) lock_wait(lock);
}

/* Whether somebody waits for it: a hint. */
static inline bool lock_is_wanted(const struct lock *lock)
{
    return atomic_load_explicit(&lock->waiting, memory_order_relaxed) > 0;
}

static inline void lock_give(struct lock *lock)
{
    bool wanted = lock_is_wanted(lock);
    atomic_store_explicit(&lock->held, 0, memory_order_release); /* see lock_try */
    if (wanted) lock_wake_one(lock);
}

#endif
