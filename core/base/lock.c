#include "base/lock.h"

#include "portable/futex.h"

enum { NAP_NS = 50 * 1000 * 1000 }; /* each retry makes the next holder wake a sleeper, so retries are rare */

void lock_wait(struct lock *lock)
{
    atomic_fetch_add_explicit(&lock->waiting, 1, memory_order_relaxed);
    /* acquire: see lock_try.  Other threads may sleep too, so the lock is taken as slept for. */
    while (atomic_exchange_explicit(&lock->state, LOCK_SLEPT_FOR, memory_order_acquire) != LOCK_FREE)
        futex_wait(&lock->state, LOCK_SLEPT_FOR, NAP_NS);
    atomic_fetch_sub_explicit(&lock->waiting, 1, memory_order_relaxed);
}

void lock_wake_one(struct lock *lock)
{
    /* Only the address is used: the lock itself may have been freed. */
    futex_wake_one(&lock->state);
}
