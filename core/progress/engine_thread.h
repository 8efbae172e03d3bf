/* The progress thread of a group tree.
 *
 * It makes progress only while asynchronous operations are pending and no caller waits.  After a while without calls
 * it sleeps on the backends' descriptors, so that peers' control messages are answered.  An idle group costs no CPU. */
#ifndef ENGINE_THREAD_H
#define ENGINE_THREAD_H

#include "progress/engine.h"

/* Starts the thread, if it does not run yet.  Lock held. */
void engine_thread_start(struct engine *engine);

/* Notifies the thread of an issued asynchronous operation.  Lock held. */
void engine_thread_notify(struct engine *engine);

/* Makes the thread begin at once with pending operations, because the program lets itself be told of an end rather than
 * wait for it.  Lock held. */
void engine_thread_hurry(struct engine *engine);

/* True if the thread has left a round to the next asynchronous call. */
static inline bool engine_has_offer(struct engine *engine)
{
    /* relaxed: the lock orders the rounds */
    return atomic_load_explicit(&engine->offered, memory_order_relaxed);
}

/* Makes the round that the thread has left to the next asynchronous call, if there is one.  Lock held. */
void engine_take_round(struct engine *engine);

#endif
