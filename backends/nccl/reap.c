/* Communicators are ended on a thread of their own: NCCL may wait there, for kernels that never end or for peers that
 * are gone, and the program must not. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ncclb.h"

enum { WAIT_MS = 900, GENTLE_MS = 5000 };

struct reaping {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done, left; /* the thread is through; nobody waits for it any more */
    CUcontext context;
    CUdevice device;
    int64_t (*now_ns)(void);
    bool gently;
    int n;
    ncclComm_t comms[];
};

static void reaping_free(struct reaping *reaping)
{
    pthread_cond_destroy(&reaping->changed);
    pthread_mutex_destroy(&reaping->lock);
    free(reaping);
}

/* Whether it has said its goodbyes. */
static bool finish(const struct reaping *reaping, ncclComm_t comm)
{
    static const struct timespec nap = {0, 200000};
    int64_t deadline = reaping->now_ns() + INT64_C(1000000) * GENTLE_MS;
    ncclResult_t state = ncclb_lib.ncclCommFinalize(comm);
    while (state == ncclInProgress && reaping->now_ns() < deadline) {
        nanosleep(&nap, NULL);
        if (ncclb_lib.ncclCommGetAsyncError(comm, &state) != ncclSuccess) return false;
    }
    return state == ncclSuccess;
}

static void *reap(void *argument)
{
    struct reaping *reaping = argument;
    driver.cuCtxPushCurrent(reaping->context);
    for (int i = 0; i < reaping->n; i++)
        if (reaping->gently && finish(reaping, reaping->comms[i]))
            ncclb_lib.ncclCommDestroy(reaping->comms[i]);
        else
            ncclb_lib.ncclCommAbort(reaping->comms[i]);
    CUcontext ours;
    driver.cuCtxPopCurrent(&ours);
    driver.cuDevicePrimaryCtxRelease(reaping->device);
    pthread_mutex_lock(&reaping->lock);
    reaping->done = true;
    bool left = reaping->left;
    pthread_cond_signal(&reaping->changed);
    pthread_mutex_unlock(&reaping->lock);
    if (left) reaping_free(reaping);
    return NULL;
}

static bool start(struct reaping *reaping)
{
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
    int error = pthread_create(&thread, NULL, reap, reaping);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) pthread_detach(thread);
    return error == 0;
}

/* Whether it is through within the time; if not, it frees itself later. */
static bool wait_a_while(struct reaping *reaping)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)WAIT_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&reaping->lock);
    while (!reaping->done && pthread_cond_timedwait(&reaping->changed, &reaping->lock, &until) == 0) continue;
    bool done = reaping->done;
    reaping->left = !done;
    pthread_mutex_unlock(&reaping->lock);
    if (done) reaping_free(reaping);
    return done;
}

void ncclb_reap(struct ncclb_group *group, ncclComm_t *comms, int n, bool gently)
{
    if (n == 0) return;
    struct reaping *reaping = calloc(1, sizeof *reaping + (size_t)n * sizeof *comms);
    CUcontext kept; /* the thread's own hold on the device */
    if (reaping == NULL || driver.cuDevicePrimaryCtxRetain(&kept, group->device.handle) != CUDA_SUCCESS) {
        free(reaping);
        group->host->log(1, "nccl: %d communicators of group %s are left to the end of the program", n,
                         group->info.name);
        return;
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
    reaping->gently = gently;
    reaping->n = n;
    memcpy(reaping->comms, comms, (size_t)n * sizeof *comms);
    if (!start(reaping)) reap(reaping);
    if (!wait_a_while(reaping))
        group->host->log(1, "nccl: ending %d communicator%s of group %s takes more than %d ms; it goes on by itself", n,
                         n == 1 ? "" : "s", group->info.name, WAIT_MS);
}
