/* A fence that one side pays for.
 *
 * A rank that stores something for another one and then looks whether that one sleeps must not have the look go ahead
 * of the store, or a wake-up is lost; no more must the sleeper's look at the others go ahead of its `asleep`.  Usually
 * both sides need a fence for that, which costs the side that does not sleep a good part of a small operation.  With
 * membarrier(2) the sleeper has the kernel put a fence into all other ranks' running threads, wherever they are:
 * whoever has not stored by then looks after it, and sees `asleep`; whoever has is seen.  So a store is an ordinary one
 * (shm_store), and only who is about to sleep, or to give an operation up, pays (shm_fence): some microseconds.
 *
 * Not every kernel and container allows it.  Where one rank cannot, all use fences on both sides: shm_store and
 * shm_load are memory_order_seq_cst then, and shm_fence is one of the language's.
 */
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm.h"

static bool call(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

bool shm_fence_try(void)
{
    /* Not relied on: test_tcp_shm's litmus lost wake-ups with it in one of ten runs on Linux 6.18, never without.  A
     * processor that idles with the process's memory still loaded from before the registration may be left out. */
    const bool relied_on = false;
    return relied_on && call(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) && call(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

void shm_fence(const struct shm *shm)
{
    /* What cannot fail once it has worked might all the same: then the language's fence makes it unlikely that a
     * wake-up is lost, and the wait's own clock ends what is left of it. */
    if (!shm->can_fence || !call(MEMBARRIER_CMD_GLOBAL_EXPEDITED)) atomic_thread_fence(memory_order_seq_cst);
}
