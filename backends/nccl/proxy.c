/* NCCL before 2.27 keeps what a non-blocking call has begun in variables of the thread that called (group.cc), and uses
 * them until it is through: another call of that thread for another communicator spoils both, and so does the thread's
 * end.  There each communicator has a thread that makes its calls, and a group has one for those that are one.  With
 * newer NCCL there are none: hands are NULL, and calls are made here and now. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "ncclb.h"

struct ncclb_hand {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    CUcontext context;
    ncclResult_t (*fn)(void *argument); /* to be called; NULL: nothing to do */
    void *argument;
    ncclResult_t result;
    bool ends;
};

static void *hand_main(void *argument)
{
    struct ncclb_hand *hand = argument;
    driver.cuCtxPushCurrent(hand->context);
    pthread_mutex_lock(&hand->lock);
    while (!hand->ends) {
        if (hand->fn != NULL) {
            hand->result = hand->fn(hand->argument);
            hand->fn = NULL;
            pthread_cond_broadcast(&hand->changed);
        } else {
            pthread_cond_wait(&hand->changed, &hand->lock);
        }
    }
    pthread_mutex_unlock(&hand->lock);
    return NULL;
}

bool ncclb_thread_new(pthread_t *thread, void *(*main)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread, NULL, main, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

int ncclb_hand_new(const struct ncclb_group *group, struct ncclb_hand **out)
{
    if (ncclb_lib.version >= 22700 || *out != NULL) return TUTTI_OK;
    struct ncclb_hand *hand = calloc(1, sizeof *hand);
    if (hand == NULL) return group->host->error(TUTTI_ERR_NO_MEMORY, "nccl: no memory for a communicator's thread");
    pthread_mutex_init(&hand->lock, NULL);
    pthread_cond_init(&hand->changed, NULL);
    hand->context = group->device.context;
    if (!ncclb_thread_new(&hand->thread, hand_main, hand)) {
        free(hand);
        return group->host->error(TUTTI_ERR_SYSTEM, "nccl: no thread for a communicator");
    }
    *out = hand;
    return TUTTI_OK;
}

ncclResult_t ncclb_hand_do(struct ncclb_hand *hand, ncclResult_t (*fn)(void *argument), void *argument)
{
    if (hand == NULL) return fn(argument);
    pthread_mutex_lock(&hand->lock);
    hand->argument = argument;
    hand->fn = fn;
    pthread_cond_broadcast(&hand->changed);
    while (hand->fn != NULL) pthread_cond_wait(&hand->changed, &hand->lock);
    ncclResult_t result = hand->result;
    pthread_mutex_unlock(&hand->lock);
    return result;
}

void ncclb_hand_free(struct ncclb_hand *hand)
{
    if (hand == NULL) return;
    pthread_mutex_lock(&hand->lock);
    hand->ends = true;
    pthread_cond_broadcast(&hand->changed);
    pthread_mutex_unlock(&hand->lock);
    pthread_join(hand->thread, NULL);
    pthread_cond_destroy(&hand->changed);
    pthread_mutex_destroy(&hand->lock);
    free(hand);
}
