/* FAKE: a stand-in for NVIDIA's driver, for tests on machines without a GPU.  Device memory is host memory, a stream
 * is a thread that works through a queue, an event is a count.  What CUDA forbids during a capture, or
 * without a context, is refused here too.
 *
 *   FAKE_CUDA_DEVICES=N       how many GPUs there are (8)
 *   FAKE_CUDA_PINNED_MOST=N   bytes: pinned host memory beyond is refused
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

/* Something to be done in a stream.  A captured one is done at each launch of the graph: run must leave argument as it
 * is. */
struct fake_work {
    uint64_t (*begin)(void *argument); /* when it is put into a stream's queue; NULL: its number is 0 */
    void (*run)(void *argument, uint64_t number);
    void (*drop)(void *argument); /* when it is not needed any more; NULL */
};

struct fake_task {
    STAILQ_ENTRY(fake_task) link;
    const struct fake_work *work;
    void *argument;
    uint64_t number;
    bool borrowed; /* the graph's */
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
    struct fake_tasks tasks; /* the graph's own */
};

struct CUstream_st {
    LIST_ENTRY(CUstream_st) link; /* all that there are */
    CUcontext context;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct fake_tasks queue;
    bool busy, closing;
    bool blocking; /* it and the legacy stream wait for each other */
    int priority;
    CUgraph graph; /* being captured */
    CUstreamCaptureMode mode;
    bool spoiled; /* something forbidden was done meanwhile */
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

/* Puts work into the stream, or into the graph that is being captured from it.  Takes argument. */
CUresult fake_enqueue(CUstream stream, const struct fake_work *work, void *argument);

/* NULL stands for the context's own stream. */
CUstream fake_stream(CUstream stream);

/* Whether the calling thread may do something that CUDA forbids during captures; if not, they are spoiled. */
bool fake_may(void);

CUcontext fake_current(void);

/* Whether one of the context's streams has something to do; until none has. */
bool fake_is_busy(CUcontext context);
void fake_wait_for(CUcontext context);

/* For tests: the device meets an error, which its events tell from then on; nobody's host functions are called. */
void fake_break(int device, bool broken);

/* And how many streams there are. */
int fake_streams_of_priority(int priority);

#endif
