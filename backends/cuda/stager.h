/* The device plug-in: it does no operation between ranks, but lets a CPU backend do them on CUDA tensors, by copies in
 * pinned host memory.
 *
 *   backend.c   the table, and tutti_alloc     lane.c   where the copies of one operation run
 *   driver.c, device.c   NVIDIA's driver, the rank's GPU (the nccl plug-in has them too)
 */
#ifndef STAGER_H
#define STAGER_H

#include <sys/queue.h>

#include "device.h"

/* Pinned memory, and a stream each way: so a chunk goes to the device while the next one comes from it. */
struct lane {
    LIST_ENTRY(lane) link; /* idle ones */
    CUstream out, back;
    CUevent entry; /* what the caller's stream held */
    void *memory;
    size_t bytes;
    int copies; /* under way */
    bool closed;
};

struct copy {
    TAILQ_ENTRY(copy) link;
    struct lane *lane;
    CUevent ended;
    tutti_request *request; /* NULL: cancelled */
    bool out;
};

struct stager {
    const tutti_host *host;
    tutti_group_info info;
    struct stager *first; /* of the family: it has all that follows */
    struct device device;
    int bell;       /* an eventfd, rung behind each copy */
    uint64_t rings; /* not heard yet */
    LIST_HEAD(, lane) idle;
    size_t idle_bytes;
    int lanes; /* that there are */
    TAILQ_HEAD(, copy) under_way, spare;
};

/* A lane whose copies come after what stream holds. */
int lane_open(struct stager *first, CUstream stream, size_t bytes, struct lane **lane);
void lane_close(struct stager *first, struct lane *lane);

int lane_copy(struct stager *first, struct lane *lane, const tutti_op *op, tutti_request *request);

/* Completes what has ended; how many. */
int lane_move(struct stager *first);

/* Takes a copy's request back, if the copy has not begun and will not write what is the caller's. */
int lane_cancel(struct stager *first, const tutti_request *request);

/* Gives everything back, after a bounded wait for what is under way. */
void lane_end(struct stager *first);

#endif
