/* FAKE: a stand-in for NVIDIA's driver, for tests on machines without a GPU.  Device memory is host memory, a stream is
 * a thread that works through a queue, and an event is a count.  Calls that CUDA forbids during a capture, or without a
 * context, are refused here too.
 *
 *   FAKE_CUDA_DEVICES=N       number of GPUs (8)
 *   FAKE_CUDA_PINNED_MOST=N   bytes of pinned host memory; more is refused
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum { FAKE_DEVICES_MAX = 16 };

/* Work of a stream.  Captured work runs at each launch of the graph, so `run` must not change argument. */
struct fake_work {
    uint64_t (*begin)(void *argument); /* called when it is queued; NULL: its number is 0 */
    void (*run)(void *argument, uint64_t number);
    void (*drop)(void *argument); /* called when it is no longer needed; may be NULL */
};

struct fake_task {
    STAILQ_ENTRY(fake_task) link;
    const struct fake_work *work;
    void *argument;
    uint64_t number;
    bool borrowed; /* owned by the graph */
};

STAILQ_HEAD(fake_tasks, fake_task);

struct CUctx_st {
    int device;
    int retained;
    CUstream legacy; /* the NULL stream */
    atomic_bool broken;
};

struct CUgraph_st {
    struct fake_tasks tasks;
};

struct CUgraphExec_st {
    struct fake_tasks tasks; /* owned by the graph */
};

struct CUstream_st {
    LIST_ENTRY(CUstream_st) link; /* all existing streams */
    CUcontext context;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct fake_tasks queue;
    bool busy, closing;
    bool blocking; /* synchronizes with the legacy stream */
    int priority;
    CUgraph graph; /* being captured */
    CUstreamCaptureMode mode;
    bool spoiled; /* invalidated by a forbidden call */
};

struct CUevent_st {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t recorded, done;
    int64_t done_ns;
    bool timed;
    int references;
};

extern struct CUctx_st fake_contexts[FAKE_DEVICES_MAX];

/* Enqueues work in the stream, or adds it to the graph being captured from it.  Takes ownership of argument. */
CUresult fake_enqueue(CUstream stream, const struct fake_work *work, void *argument);

/* Returns the stream itself, or for NULL the context's own stream. */
CUstream fake_stream(CUstream stream);

/* Returns false if CUDA forbids the call during a capture.  Running captures are then invalidated. */
bool fake_may(void);

CUcontext fake_current(void);

/* True if one of the context's streams has work.  The second one waits until none has. */
bool fake_is_busy(CUcontext context);
void fake_wait_for(CUcontext context);

/* Makes the device fail, for tests.  Its events report the error from then on, and host functions are not called. */
void fake_break(int device, bool broken);

/* Returns the number of streams of a priority, for tests. */
int fake_streams_of_priority(int priority);

#endif
