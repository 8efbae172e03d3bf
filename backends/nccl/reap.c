/* Ends communicators on separate threads.  NCCL may wait there for kernels that never complete or for lost peers, and
 * the program must not.
 *
 * Communicators without errors are all finalized before the first one is destroyed.  A peer may have opened them in
 * another order and wait in the finalize of one while this rank destroys another.  The others are aborted at once, each
 * on its own thread, because an abort may wait for the whole device, where kernels of another communicator still
 * spin.
 *
 * An exit waits for all of this, because NCCL and the driver clean up in the exit, and a thread that runs on crashes in
 * what is gone (seen on an H100 with NCCL 2.28).  An abort ends the kernels that the program waits for first, so that
 * the program may exit while the thread that aborts still waits here. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "ncclb.h"

enum { WAIT_MS = 900, GENTLE_MS = 5000, EXIT_MS = 10000 };

struct ending {
    struct reaping *reaping;
    ncclComm_t comm;
    struct ncclb_proxy *proxy;
    void *async_result; /* its communicator has failed and is aborted: see ncclb_comm_stream */
    bool gently;
    ncclResult_t state; /* result of ncclCommFinalize */
};

struct reaping {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int threads;
    bool left; /* abandoned by the caller */
    CUcontext context;
    CUdevice device;
    int64_t (*now_ns)(void);
    int n;
    struct ending ending[];
};

/* ---- exit --------------------------------------------------------------------------------------------------- */

/* The lists whose communicators end now. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n;
    atomic_int process; /* whose exit will wait; a forked one has none of the threads, and may find the lock taken */
} running = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void init_running(void)
{
    init_condition(&running.changed);
}

static struct timespec after_ms(int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

static void wait_at_exit(void)
{
    /* relaxed: it decides only whether this is a forked process */
    if (atomic_load_explicit(&running.process, memory_order_relaxed) != getpid()) return;
    struct timespec until = after_ms(EXIT_MS);
    pthread_mutex_lock(&running.lock);
    atomic_store_explicit(&running.process, 0, memory_order_relaxed); /* later handlers may end more communicators */
    while (running.n > 0 && pthread_cond_timedwait(&running.changed, &running.lock, &until) == 0) continue;
    if (running.n > 0)
        fprintf(stderr, "tutti: nccl: communicators have not ended %d ms after the exit began; it goes on\n", EXIT_MS);
    pthread_mutex_unlock(&running.lock);
}

/* Counts a list that begins.  Registers the handler late, so that it runs before those of NCCL and the driver. */
static void begin_running(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_running);
    pthread_mutex_lock(&running.lock);
    /* relaxed: under the lock */
    bool is_first = atomic_exchange_explicit(&running.process, getpid(), memory_order_relaxed) != getpid();
    running.n++;
    pthread_mutex_unlock(&running.lock);
    if (is_first) atexit(wait_at_exit);
}

static void end_running(void)
{
    pthread_mutex_lock(&running.lock);
    running.n--;
    pthread_cond_broadcast(&running.changed);
    pthread_mutex_unlock(&running.lock);
}

/* ---- threads ----------------------------------------------------------------------------------------------- */

/* Frees a list whose threads have all ended. */
static void reaping_free(struct reaping *reaping)
{
    driver.cuDevicePrimaryCtxRelease(reaping->device);
    pthread_cond_destroy(&reaping->changed);
    pthread_mutex_destroy(&reaping->lock);
    free(reaping);
    end_running();
}

static void finish_thread(struct reaping *reaping)
{
    CUcontext ours;
    driver.cuCtxPopCurrent(&ours);
    pthread_mutex_lock(&reaping->lock);
    bool last = --reaping->threads == 0 && reaping->left;
    pthread_cond_signal(&reaping->changed);
    pthread_mutex_unlock(&reaping->lock);
    if (last) reaping_free(reaping);
}

/* Runs fn on a thread, or inline if none can be created. */
static void run_on_thread(struct reaping *reaping, void *(*fn)(void *), void *argument)
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
    ncclb_lib.ncclCommAbort(ending->comm); /* joins the thread that may write the result */
    free(ending->async_result);
    ncclb_proxy_stop(ending->proxy);
    finish_thread(ending->reaping);
    return NULL;
}

static ncclResult_t finalize_comm(void *comm)
{
    return ncclb_lib.ncclCommFinalize(comm);
}

/* Finalizes all graceful ones, until done or timed out. */
static void finalize(struct reaping *reaping)
{
    static const struct timespec interval = {0, 200000};
    int64_t deadline = reaping->now_ns() + INT64_C(1000000) * GENTLE_MS;
    bool busy = true;
    for (int i = 0; i < reaping->n; i++) {
        struct ending *ending = &reaping->ending[i];
        if (ending->gently) ending->state = ncclb_proxy_call(ending->proxy, finalize_comm, ending->comm);
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
        if (busy) nanosleep(&interval, NULL);
    }
}

static void *end_gently(void *argument)
{
    struct reaping *reaping = argument;
    driver.cuCtxPushCurrent(reaping->context);
    finalize(reaping);
    for (int i = 0; i < reaping->n; i++) {
        struct ending *ending = &reaping->ending[i];
        if (ending->gently && ending->state != ncclSuccess) run_on_thread(reaping, abort_one, ending);
    }
    for (int i = 0; i < reaping->n; i++) {
        const struct ending *ending = &reaping->ending[i];
        if (!ending->gently || ending->state != ncclSuccess) continue;
        ncclb_lib.ncclCommDestroy(ending->comm);
        ncclb_proxy_stop(ending->proxy);
    }
    finish_thread(reaping);
    return NULL;
}

/* ---- interface ------------------------------------------------------------------------------------------------- */

struct reaping *ncclb_reap_new(struct ncclb_group *group, int most)
{
    CUcontext reference; /* the threads' own reference to the context */
    struct reaping *reaping = calloc(1, sizeof *reaping + (size_t)most * sizeof *reaping->ending);
    if (reaping == NULL || driver.cuDevicePrimaryCtxRetain(&reference, group->device.handle) != CUDA_SUCCESS) {
        free(reaping);
        TUTTI_LOG_AS(group->host, "nccl", 1,
                     "nccl: cannot end %d communicators of group %s; they are leaked until the process exits", most,
                     group->info.name);
        return NULL;
    }
    init_condition(&reaping->changed);
    pthread_mutex_init(&reaping->lock, NULL);
    reaping->context = group->device.context;
    reaping->device = group->device.handle;
    reaping->now_ns = group->host->now_ns;
    return reaping;
}

void ncclb_reap_add(struct reaping *reaping, struct ncclb_comm_stream *cs, bool gently)
{
    if (cs->comm == NULL) return;
    if (reaping != NULL)
        reaping->ending[reaping->n++] = (struct ending){.reaping = reaping,
                                                        .comm = cs->comm,
                                                        .proxy = cs->proxy,
                                                        .async_result = cs->async_result,
                                                        .gently = gently,
                                                        .state = ncclSuccess};
    cs->comm = NULL;
    cs->proxy = NULL;
    cs->async_result = NULL;
}

/* Returns true if all threads finished in time; otherwise the last thread frees the shared state. */
static bool wait_bounded(struct reaping *reaping)
{
    struct timespec until = after_ms(WAIT_MS);
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
    begin_running();
    for (int i = 0; i < n; i++) {
        gentle += reaping->ending[i].gently;
        if (!reaping->ending[i].gently) run_on_thread(reaping, abort_one, &reaping->ending[i]);
    }
    if (gentle > 0) run_on_thread(reaping, end_gently, reaping);
    bool done = wait_bounded(reaping);
    if (!done)
        TUTTI_LOG_AS(group->host, "nccl", 1,
                     "nccl: ending %d communicator%s of group %s takes longer than %d ms; it continues in the "
                     "background, and the program's exit waits for it up to %d ms",
                     n, n == 1 ? "" : "s", group->info.name, WAIT_MS, EXIT_MS);
    return done;
}
