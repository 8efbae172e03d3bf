/* A lock for what is held for moments, by one thread nearly always: taking it is one atomic operation and giving it
 * back a store, both in line.  (pthread_mutex_lock and unlock are two atomic operations and 80 instructions in other
 * libraries, a tenth of a small operation.)
 *
 * It is the third mutex of Drepper's "Futexes Are Tricky": who finds it taken says that somebody sleeps, and sleeps.
 * There the one who gives it back exchanges the word for 0, which tells whether anybody sleeps; here it looks, and then
 * stores 0, as the exchange would be as dear as the one to take it.  What another thread says in between is lost; but
 * that one sleeps only if the kernel, later by a call, still finds its word there and not the 0.  Should the giver lose
 * its core just then, the sleeper's nap ends by itself.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <stdatomic.h>
#include <stdbool.h>

enum { LOCK_FREE, LOCK_HELD, LOCK_SLEPT_FOR };

struct lock {
    atomic_uint state;
    atomic_uint waiting; /* threads that want it */
};

static inline bool lock_try(struct lock *lock)
{
    unsigned state = LOCK_FREE;
    /* acquire: what its last holder did comes before what this one does */
    return atomic_compare_exchange_strong_explicit(&lock->state, &state, LOCK_HELD, memory_order_acquire,
                                                   memory_order_relaxed);
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
    /* Not after the store: then the lock may be gone. */
    bool wakes = atomic_load_explicit(&lock->state, memory_order_relaxed) == LOCK_SLEPT_FOR;
    atomic_store_explicit(&lock->state, LOCK_FREE, memory_order_release); /* see lock_try */
    if (wakes) lock_wake_one(lock);
}

#endif
