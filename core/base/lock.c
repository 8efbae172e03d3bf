#include "base/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NAP_NS = 50 * 1000 * 1000 }; /* each sleeper that tries again has the next holder wake one: not too often */

void lock_wait(struct lock *lock)
{
    struct timespec nap = {.tv_nsec = NAP_NS};
    atomic_fetch_add_explicit(&lock->waiting, 1, memory_order_relaxed);
    /* acquire: see lock_try.  Others may sleep, too: so it is held as slept for. */
    while (atomic_exchange_explicit(&lock->state, LOCK_SLEPT_FOR, memory_order_acquire) != LOCK_FREE)
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, LOCK_SLEPT_FOR, &nap, NULL, 0);
    atomic_fetch_sub_explicit(&lock->waiting, 1, memory_order_relaxed);
}

void lock_wake_one(struct lock *lock)
{
    /* Only the address counts: the lock itself may be gone. */
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
