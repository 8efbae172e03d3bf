/* Wake-ups of peers that sleep.
 *
 * A rank about to sleep stores `asleep` and then checks all its rings once more.  A writer stores a message and then
 * loads `asleep`.  One of them must see the other's store, or a wake-up would be lost.  Release and acquire do not
 * guarantee that: a processor may load before its earlier store is visible.  So each side needs a sequentially
 * consistent fence between its store and its load, and in the order of the fences the later side sees the other's
 * store.
 *
 * The sleeper has its fence in shm_arm.  A fence right behind each of the writer's stores would make the writer wait
 * until it owns the cache line, which the reader still holds.  So the writer checks twice.  The first check comes at
 * once, without a fence: it finds a peer that has been asleep for a while.  The second one, shm_settle, has the fence
 * and covers all stores whose first check has not rung.  It comes when the rank waits, yields or sleeps, and at the
 * latest after a few more operations.  If the program makes no call, the progress thread makes progress once it notices
 * that, within 100 ms, and settles: it takes the lock that the caller has released, so the caller's stores happen
 * before its fence.  A thread that sleeps on the backends already does not notice it.  Then the sleeper finds the
 * store: a rank that waits for an operation looks again after at most 100 ms (engine_sleep_ms).  So a wake-up may be
 * late, but it is not lost.  It is rarely late, because the core lets a sleeper check again after 0.1 ms, before it
 * sleeps for longer.
 *
 * The same holds for `wants_space`, which a writer sets before it sleeps, and for the reader's counts.  The sequences
 * are checked under the C11 and arm64 memory models by tests/litmus/wake.order.
 */
#include <unistd.h>

#include "tcp/shm/shm.h"

bool shm_ring_doorbell(struct shm *shm, int local_rank)
{
    /* relaxed: exactly one waker sees 1 and rings, and its doorbell provides the ordering of its own stores */
    if (atomic_exchange_explicit(&shm_rank_at(shm, local_rank)->asleep, 0, memory_order_relaxed) == 0) return false;
    if (shm_is_disowned(shm)) return true; /* the peer notices this rank's loss by its liveness descriptor */
    uint64_t one = 1;
    ssize_t written = write(shm->peer[local_rank].doorbell_fd, &one, sizeof one);
    (void)written; /* EAGAIN: the doorbell is readable already */
    shm->has_rung = true;
    return true;
}

static bool ring_if_asleep(struct shm *shm, int local_rank)
{
    return atomic_load_explicit(&shm_rank_at(shm, local_rank)->asleep, memory_order_relaxed) != 0 &&
           shm_ring_doorbell(shm, local_rank);
}

/* Wakes the writer of a ring if it wants space.  Returns true if it has rung. */
static bool wake_writer(struct shm *shm, int local_rank)
{
    struct shm_ring *in = shm->peer[local_rank].in;
    if (atomic_load_explicit(&in->wants_space, memory_order_relaxed) == 0) return false;
    /* An exchange, because a plain store could overwrite a later request unseen.  acquire: the load of `asleep` then
     * sees that the writer whose request this clears is asleep. */
    atomic_exchange_explicit(&in->wants_space, 0, memory_order_acquire);
    return ring_if_asleep(shm, local_rank);
}

void shm_wake_writer(struct shm *shm, int local_rank)
{
    atomic_signal_fence(memory_order_seq_cst); /* keeps the compiler from moving the load before the stores */
    if (!wake_writer(shm, local_rank)) shm_unsettle(shm, SHM_FREED, local_rank);
}

static void check_again(struct shm *shm, enum shm_store store, int local_rank)
{
    if (store == SHM_FREED)
        wake_writer(shm, local_rank);
    else
        ring_if_asleep(shm, local_rank);
}

void shm_settle_all(struct shm *shm)
{
    /* seq_cst: pairs with the fence in shm_arm */
    atomic_thread_fence(memory_order_seq_cst);
    shm->is_unsettled = false;
    shm->n_unsettled = 0;
    for (int store = 0; store < SHM_STORES; store++)
        for (int word = 0; word * 64 < shm->n; word++) {
            uint64_t left = shm->unsettled[store][word];
            shm->unsettled[store][word] = 0;
            for (; left != 0; left &= left - 1) check_again(shm, store, word * 64 + __builtin_ctzll(left));
        }
}
