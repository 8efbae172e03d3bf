/* Communicators are ended on threads of their own: NCCL may wait there, for kernels that never end or for peers that
 * are gone, and the program must not.
 *
 * Those in good order have all said their goodbyes before the first of them is destroyed: a peer has opened them in
 * another order, and may be waiting for the goodbye of one while this rank destroys another.  The others are aborted at
 * once, each on a thread: the end of one may wait for the whole device, where kernels of another still turn. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "ncclb.h"

enum { WAIT_MS = 900, GENTLE_MS = 5000 };

struct ending {
    struct reaping *reaping;
    ncclComm_t comm;
    struct ncclb_hand *hand;
    bool gently;
    ncclResult_t state; /* of its goodbyes */
};

struct reaping {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int threads;
    bool left; /* nobody waits for them any more */
    CUcontext context;
    CUdevice device;
    int64_t (*now_ns)(void);
    int n;
    struct ending ending[];
};

static void reaping_free(struct reaping *reaping)
{
    driver.cuDevicePrimaryCtxRelease(reaping->device);
    pthread_cond_destroy(&reaping->changed);
    pthread_mutex_destroy(&reaping->lock);
    free(reaping);
}

/* ---- threads ----------------------------------------------------------------------------------------------- */

static void thread_ends(struct reaping *reaping)
{
    CUcontext ours;
    driver.cuCtxPopCurrent(&ours);
    pthread_mutex_lock(&reaping->lock);
    bool last = --reaping->threads == 0 && reaping->left;
    pthread_cond_signal(&reaping->changed);
    pthread_mutex_unlock(&reaping->lock);
    if (last) reaping_free(reaping);
}

/* Where there is no thread to be had, here and now. */
static void begin(struct reaping *reaping, void *(*fn)(void *), void *argument)
{
    pthread_t thread;
    pthread_mutex_lock(&reaping->lock);
    reaping->threads++;
    pthread_mutex_unlock(&reaping->lock);
    if (ncclb_thread_new(&thread, fn, argument))
        pthread_detach(thread);
    else
        fn(argument);
}

static void *abort_one(void *argument)
{
    const struct ending *ending = argument;
    driver.cuCtxPushCurrent(ending->reaping->context);
    ncclb_lib.ncclCommAbort(ending->comm);
    ncclb_hand_free(ending->hand);
    thread_ends(ending->reaping);
    return NULL;
}

static ncclResult_t say_goodbye(void *comm)
{
    return ncclb_lib.ncclCommFinalize(comm);
}

/* Until all have said their goodbyes, or the time is up. */
static void finalize(struct reaping *reaping)
{
    static const struct timespec nap = {0, 200000};
    int64_t deadline = reaping->now_ns() + INT64_C(1000000) * GENTLE_MS;
    bool busy = true;
    for (int i = 0; i < reaping->n; i++) {
        struct ending *ending = &reaping->ending[i];
        if (ending->gently) ending->state = ncclb_hand_do(ending->hand, say_goodbye, ending->comm);
    }
    while (busy && reaping->now_ns() < deadline) {
        busy = false;
        for (int i = 0; i < reaping->n; i++) {
            struct ending *ending = &reaping->ending[i];
            if (!ending->gently || ending->state != ncclInProgress) continue;
            ncclResult_t asked = ncclb_lib.ncclCommGetAsyncError(ending->comm, &ending->state);
            if (asked != ncclSuccess) ending->state = asked;
            busy |= ending->state == ncclInProgress;
        }
        if (busy) nanosleep(&nap, NULL);
    }
}

static void *end_gently(void *argument)
{
    struct reaping *reaping = argument;
    driver.cuCtxPushCurrent(reaping->context);
    finalize(reaping);
    for (int i = 0; i < reaping->n; i++) {
        struct ending *ending = &reaping->ending[i];
        if (ending->gently && ending->state != ncclSuccess) begin(reaping, abort_one, ending);
    }
    for (int i = 0; i < reaping->n; i++) {
        const struct ending *ending = &reaping->ending[i];
        if (!ending->gently || ending->state != ncclSuccess) continue;
        ncclb_lib.ncclCommDestroy(ending->comm);
        ncclb_hand_free(ending->hand);
    }
    thread_ends(reaping);
    return NULL;
}

/* ---- the caller's side ------------------------------------------------------------------------------------- */

struct reaping *ncclb_reap_new(struct ncclb_group *group, int most)
{
    CUcontext kept; /* the threads' own hold on the device */
    struct reaping *reaping = calloc(1, sizeof *reaping + (size_t)most * sizeof *reaping->ending);
    if (reaping == NULL || driver.cuDevicePrimaryCtxRetain(&kept, group->device.handle) != CUDA_SUCCESS) {
        free(reaping);
        group->host->log(1, "nccl: %d communicators of group %s are left to the end of the program", most,
                         group->info.name);
        return NULL;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&reaping->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&reaping->lock, NULL);
    reaping->context = group->device.context;
    reaping->device = group->device.handle;
    reaping->now_ns = group->host->now_ns;
    return reaping;
}

void ncclb_reap_add(struct reaping *reaping, struct ncclb_channel *channel, bool gently)
{
    if (channel->comm == NULL) return;
    if (reaping != NULL)
        reaping->ending[reaping->n++] = (struct ending){reaping, channel->comm, channel->hand, gently, ncclSuccess};
    channel->comm = NULL;
    channel->hand = NULL;
}

/* Whether they are through within the time; if not, the last one frees what they share. */
static bool wait_a_while(struct reaping *reaping)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)WAIT_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&reaping->lock);
    while (reaping->threads > 0 && pthread_cond_timedwait(&reaping->changed, &reaping->lock, &until) == 0) continue;
    bool done = reaping->threads == 0;
    reaping->left = !done;
    pthread_mutex_unlock(&reaping->lock);
    if (done) reaping_free(reaping);
    return done;
}

bool ncclb_reap(struct ncclb_group *group, struct reaping *reaping)
{
    int n = reaping->n, gentle = 0;
    for (int i = 0; i < n; i++) {
        gentle += reaping->ending[i].gently;
        if (!reaping->ending[i].gently) begin(reaping, abort_one, &reaping->ending[i]);
    }
    if (gentle > 0) begin(reaping, end_gently, reaping);
    bool done = wait_a_while(reaping);
    if (!done)
        group->host->log(1, "nccl: ending %d communicator%s of group %s takes more than %d ms; it goes on by itself", n,
                         n == 1 ? "" : "s", group->info.name, WAIT_MS);
    return done;
}
