/* One bit per descriptor number, without a lock: at a fork, another thread may hold any lock, which the child could
 * then never take. */
#include "base/forked.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

enum { WORDS = 1024, BITS = 64 };

static _Atomic uint64_t registered[WORDS];

static void in_child(void)
{
    for (int i = 0; i < WORDS; i++) {
        /* relaxed: the child has one thread */
        uint64_t left = atomic_exchange_explicit(&registered[i], 0, memory_order_relaxed);
        for (; left != 0; left &= left - 1) close(i * BITS + __builtin_ctzll(left));
    }
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

void forked_gives_up(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    /* release: a child that sees the bit sees an open descriptor */
    if (fd >= 0 && fd < WORDS * BITS)
        atomic_fetch_or_explicit(&registered[fd / BITS], UINT64_C(1) << fd % BITS, memory_order_release);
}

void forked_forgets(int fd)
{
    /* seq_cst: before the caller closes it, after which another thread may reuse the number */
    if (fd >= 0 && fd < WORDS * BITS)
        atomic_fetch_and_explicit(&registered[fd / BITS], ~(UINT64_C(1) << fd % BITS), memory_order_seq_cst);
}
