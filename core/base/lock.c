#include "base/lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_NAP_NS = 500 * 1000 };

void lock_wait(struct lock *lock)
{
    struct timespec nap = {.tv_nsec = LOCK_NAP_NS};
    atomic_fetch_add_explicit(&lock->waiting, 1, memory_order_relaxed);
    while (!lock_try(lock)) syscall(SYS_futex, &lock->held, FUTEX_WAIT_PRIVATE, 1, &nap, NULL, 0);
    atomic_fetch_sub_explicit(&lock->waiting, 1, memory_order_relaxed);
}

void lock_wake_one(struct lock *lock)
{
    /* Only the address counts: the lock itself may be gone. */
    syscall(SYS_futex, &lock->held, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
