/* FAKE streams, events and graphs. */
#include "fake_cuda.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t captures_lock = PTHREAD_MUTEX_INITIALIZER;
static CUstream capturing[64]; /* in the order in which they started */
static pthread_t capturer[64];
static int n_capturing;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool fake_may(void)
{
    bool may = true;
    pthread_mutex_lock(&captures_lock);
    for (int i = 0; i < n_capturing && thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED; i++) {
        bool own = pthread_equal(capturer[i], pthread_self());
        bool forbids = capturing[i]->mode == CU_STREAM_CAPTURE_MODE_GLOBAL
                           ? own || thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL
                           : capturing[i]->mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL && own;
        if (!forbids) continue;
        capturing[i]->spoiled = true;
        may = false;
    }
    pthread_mutex_unlock(&captures_lock);
    return may;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* ---- streams ----------------------------------------------------------------------------------------------- */

static LIST_HEAD(, CUstream_st) streams = LIST_HEAD_INITIALIZER(streams);
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;

static void *stream_main(void *argument)
{
    CUstream stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        struct fake_task *task = STAILQ_FIRST(&stream->queue);
        if (task == NULL) {
            stream->busy = false;
            pthread_cond_broadcast(&stream->changed);
            if (stream->closing) break;
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        STAILQ_REMOVE_HEAD(&stream->queue, link);
        stream->busy = true;
        pthread_mutex_unlock(&stream->lock);
        task->work->run(task->argument, task->number);
        if (!task->borrowed && task->work->drop != NULL) task->work->drop(task->argument);
        free(task);
        pthread_mutex_lock(&stream->lock);
    }
    pthread_mutex_unlock(&stream->lock);
    pthread_mutex_lock(&streams_lock);
    LIST_REMOVE(stream, link);
    pthread_mutex_unlock(&streams_lock);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
    return NULL;
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    pthread_t thread;
    if (fake_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    CUstream stream = calloc(1, sizeof *stream);
    stream->blocking = (flags & CU_STREAM_NON_BLOCKING) == 0;
    stream->context = fake_current();
    stream->priority = priority;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    STAILQ_INIT(&stream->queue);
    pthread_mutex_lock(&streams_lock);
    LIST_INSERT_HEAD(&streams, stream, link);
    pthread_mutex_unlock(&streams_lock);
    if (pthread_create(&thread, NULL, stream_main, stream) != 0) {
        abort();
    }
    pthread_detach(thread);
    *out = stream;
    return CUDA_SUCCESS;
}

int fake_streams_of_priority(int priority)
{
    CUstream stream;
    int n = 0;
    pthread_mutex_lock(&streams_lock);
    LIST_FOREACH(stream, &streams, link)
    {
        n += stream->priority == priority;
    }
    pthread_mutex_unlock(&streams_lock);
    return n;
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
    return cuStreamCreateWithPriority(out, flags, 0);
}

CUstream fake_stream(CUstream stream)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    if (stream != NULL && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD) return stream;
    CUcontext context = fake_current();
    if (context == NULL) return NULL;
    pthread_mutex_lock(&lock);
    if (context->legacy == NULL) cuStreamCreate(&context->legacy, 0);
    pthread_mutex_unlock(&lock);
    return context->legacy;
}

CUresult cuStreamDestroy(CUstream stream)
{
    pthread_mutex_lock(&stream->lock);
    stream->closing = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return CUDA_SUCCESS;
}

static void push(CUstream stream, struct fake_task *task)
{
    pthread_mutex_lock(&stream->lock);
    task->number = task->work->begin != NULL ? task->work->begin(task->argument) : 0;
    STAILQ_INSERT_TAIL(&stream->queue, task, link);
    stream->busy = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

/* True if the legacy stream blocks a capture in its context.  Using it then invalidates the capture. */
static bool is_barred(CUstream stream, bool use)
{
    bool barred = false;
    if (stream == NULL || stream != stream->context->legacy) return false;
    pthread_mutex_lock(&captures_lock);
    for (int i = 0; i < n_capturing; i++) {
        if (capturing[i]->context != stream->context || !capturing[i]->blocking) continue;
        capturing[i]->spoiled |= use;
        barred = true;
    }
    pthread_mutex_unlock(&captures_lock);
    return barred;
}

CUresult fake_enqueue(CUstream stream, const struct fake_work *work, void *argument)
{
    stream = fake_stream(stream);
    if (is_barred(stream, true)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    struct fake_task *task = calloc(1, sizeof *task);
    if (stream == NULL || task == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    task->work = work;
    task->argument = argument;
    if (stream->graph != NULL)
        STAILQ_INSERT_TAIL(&stream->graph->tasks, task, link);
    else
        push(stream, task);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    *context = fake_stream(stream)->context;
    return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream stream)
{
    if (fake_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (!fake_may()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream = fake_stream(stream);
    pthread_mutex_lock(&stream->lock);
    bool busy = stream->busy;
    pthread_mutex_unlock(&stream->lock);
    return busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    if (!fake_may()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    stream = fake_stream(stream);
    pthread_mutex_lock(&stream->lock);
    while (stream->busy) pthread_cond_wait(&stream->changed, &stream->lock);
    pthread_mutex_unlock(&stream->lock);
    return CUDA_SUCCESS;
}

bool fake_is_busy(CUcontext context)
{
    bool busy = false;
    CUstream stream;
    pthread_mutex_lock(&streams_lock);
    LIST_FOREACH(stream, &streams, link)
    {
        if (stream->context != context) continue;
        pthread_mutex_lock(&stream->lock);
        busy |= stream->busy;
        pthread_mutex_unlock(&stream->lock);
    }
    pthread_mutex_unlock(&streams_lock);
    return busy;
}

void fake_wait_for(CUcontext context)
{
    static const struct timespec nap = {0, 20000};
    while (fake_is_busy(context)) nanosleep(&nap, NULL);
}

CUresult cuCtxSynchronize(void)
{
    if (!fake_may()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    fake_wait_for(fake_current());
    return CUDA_SUCCESS;
}

/* ---- events ------------------------------------------------------------------------------------------------ */

struct moment {
    CUevent event;
    uint64_t count;
};

static void event_drop(CUevent event)
{
    pthread_mutex_lock(&event->lock);
    bool last = --event->references == 0;
    pthread_mutex_unlock(&event->lock);
    if (!last) return;
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

static void moment_drop(void *argument)
{
    struct moment *moment = argument;
    event_drop(moment->event);
    free(moment);
}

static void moment_reached(void *argument, uint64_t number)
{
    (void)number;
    struct moment *moment = argument;
    pthread_mutex_lock(&moment->event->lock);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (moment->count > moment->event->done) moment->event->done = moment->count;
    moment->event->done_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    pthread_cond_broadcast(&moment->event->changed);
    pthread_mutex_unlock(&moment->event->lock);
}

static void moment_wait(void *argument, uint64_t number)
{
    (void)number;
    struct moment *moment = argument;
    pthread_mutex_lock(&moment->event->lock);
    while (moment->event->done < moment->count) pthread_cond_wait(&moment->event->changed, &moment->event->lock);
    pthread_mutex_unlock(&moment->event->lock);
}

static const struct fake_work reach = {NULL, moment_reached, moment_drop}, wait_for = {NULL, moment_wait, moment_drop};

static struct moment *moment_new(CUevent event, bool next)
{
    struct moment *moment = calloc(1, sizeof *moment);
    pthread_mutex_lock(&event->lock);
    if (next) event->recorded++;
    *moment = (struct moment){event, event->recorded};
    event->references++;
    pthread_mutex_unlock(&event->lock);
    return moment;
}

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    CUevent event = calloc(1, sizeof *event);
    event->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    event->references = 1;
    *out = event;
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    event_drop(event);
    return CUDA_SUCCESS;
}

/* Events that connect a captured stream with others are not supported here. */
CUresult cuEventRecord(CUevent event, CUstream stream)
{
    if (fake_stream(stream)->graph != NULL) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return fake_enqueue(stream, &reach, moment_new(event, true));
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    (void)flags;
    if (fake_stream(stream)->graph != NULL) {
        fake_stream(stream)->spoiled = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    return fake_enqueue(stream, &wait_for, moment_new(event, false));
}

CUresult cuEventQuery(CUevent event)
{
    if (fake_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (!fake_may()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (atomic_load(&fake_current()->broken)) return CUDA_ERROR_LAUNCH_FAILED;
    pthread_mutex_lock(&event->lock);
    bool done = event->done >= event->recorded;
    pthread_mutex_unlock(&event->lock);
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end);
CUresult cuEventElapsedTime(float *ms, CUevent begin, CUevent end)
{
    if (!begin->timed || !end->timed || begin->recorded == 0 || end->recorded == 0) return CUDA_ERROR_INVALID_HANDLE;
    if (cuEventQuery(begin) != CUDA_SUCCESS || cuEventQuery(end) != CUDA_SUCCESS) return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(end->done_ns - begin->done_ns) / 1e6);
    return CUDA_SUCCESS;
}

/* ---- graphs ------------------------------------------------------------------------------------------------ */

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    CUgraph graph = calloc(1, sizeof *graph);
    STAILQ_INIT(&graph->tasks);
    pthread_mutex_lock(&captures_lock);
    stream->mode = mode;
    stream->spoiled = false;
    stream->graph = graph;
    capturing[n_capturing] = stream;
    capturer[n_capturing++] = pthread_self();
    pthread_mutex_unlock(&captures_lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    pthread_mutex_lock(&captures_lock);
    for (int i = 0; i < n_capturing; i++) {
        if (capturing[i] != stream) continue;
        n_capturing--;
        memmove(&capturing[i], &capturing[i + 1], (size_t)(n_capturing - i) * sizeof *capturing);
        memmove(&capturer[i], &capturer[i + 1], (size_t)(n_capturing - i) * sizeof *capturer);
        break;
    }
    bool spoiled = stream->spoiled;
    *graph = stream->graph;
    stream->graph = NULL;
    pthread_mutex_unlock(&captures_lock);
    return spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    if (is_barred(fake_stream(stream), false)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = fake_stream(stream)->graph != NULL ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
    (void)flags;
    *out = calloc(1, sizeof **out);
    (*out)->tasks = graph->tasks;
    if (STAILQ_EMPTY(&graph->tasks)) STAILQ_INIT(&(*out)->tasks);
    STAILQ_INIT(&graph->tasks); /* owned by the executable graph now */
    return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    struct fake_task *task;
    STAILQ_FOREACH(task, &exec->tasks, link)
    {
        struct fake_task *copy = calloc(1, sizeof *copy);
        *copy = (struct fake_task){.work = task->work, .argument = task->argument, .borrowed = true};
        push(fake_stream(stream), copy);
    }
    return CUDA_SUCCESS;
}

static void drop_tasks(struct fake_tasks *tasks)
{
    struct fake_task *task;
    while ((task = STAILQ_FIRST(tasks)) != NULL) {
        STAILQ_REMOVE_HEAD(tasks, link);
        if (task->work->drop != NULL) task->work->drop(task->argument);
        free(task);
    }
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    drop_tasks(&exec->tasks);
    free(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    drop_tasks(&graph->tasks);
    free(graph);
    return CUDA_SUCCESS;
}

/* ---- work of the program's own ----------------------------------------------------------------------------- */

void fake_break(int device, bool broken)
{
    atomic_store(&fake_contexts[device].broken, broken);
}

static pthread_mutex_t callbacks[FAKE_DEVICES_MAX] = {
    [0 ... FAKE_DEVICES_MAX - 1] = PTHREAD_MUTEX_INITIALIZER}; /* held by the kernel running on the device */

struct host_call {
    CUcontext context;
    CUhostFn fn;
    void *data;
};

/* Calls a host function as CUDA does: on a thread of the driver's, some time after the event before it.  The functions
 * run one after the other, also those of different streams, which CUDA leaves open.  After an error they are not
 * called. */
static void host_run(void *argument, uint64_t number)
{
    static const struct timespec late = {0, 100000};
    (void)number;
    struct host_call *call = argument;
    nanosleep(&late, NULL);
    if (atomic_load(&call->context->broken)) return;
    pthread_mutex_lock(&callbacks[call->context->device]);
    call->fn(call->data);
    pthread_mutex_unlock(&callbacks[call->context->device]);
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn fn, void *data)
{
    static const struct fake_work work = {NULL, host_run, free};
    if (fake_stream(stream) == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    struct host_call *call = malloc(sizeof *call);
    *call = (struct host_call){fake_stream(stream)->context, fn, data};
    return fake_enqueue(stream, &work, call);
}
