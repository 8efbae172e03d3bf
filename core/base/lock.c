#include "base/lock.h"

#include <unistd.h>

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

bool lock_try_ms(struct lock *lock, int ms)
{
    bool taken = lock_try(lock);
    if (taken) return true;
    atomic_fetch_add_explicit(&lock->waiting, 1, memory_order_relaxed);
    for (int i = 0; i < ms && !taken; i++) {
        usleep(1000);
        taken = lock_try(lock);
    }
    atomic_fetch_sub_explicit(&lock->waiting, 1, memory_order_relaxed);
    return taken;
}

void lock_wake_one(struct lock *lock)
{
    /* Only the address is used: the lock itself may have been freed. */
    futex_wake_one(&lock->state);
}
