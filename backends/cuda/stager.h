/* The device plug-in.  It runs no operation between ranks.  It lets a CPU backend work on CUDA tensors by copying them
 * through pinned host memory.
 *
 *   backend.c   function table, tutti_alloc    lane.c   resources for the copies of one operation
 *   driver.c, device.c   NVIDIA's driver, the rank's GPU (shared with the nccl plug-in)
 */
#ifndef STAGER_H
#define STAGER_H

#include <sys/queue.h>

#include "device.h"

/* Pinned memory and a stream per direction, so that one chunk is copied to the device while the next is copied from
 * it. */
struct lane {
    LIST_ENTRY(lane) link; /* on the list of idle lanes */
    CUstream out, back;
    CUevent entry; /* work in the caller's stream at the time of the call */
    void *memory;
    size_t bytes;
    int copies; /* pending copies */
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
    struct stager *first; /* root group of the tree, which owns the fields below */
    struct device device;
    int doorbell_fd; /* an eventfd, rung after each copy */
    uint64_t rings;  /* rings not drained yet */
    LIST_HEAD(, lane) idle;
    size_t idle_bytes;
    int lanes; /* number of lanes */
    TAILQ_HEAD(, copy) under_way, spare;
};

/* Opens a lane whose copies run after the work already in `stream`. */
int lane_open(struct stager *first, CUstream stream, size_t bytes, struct lane **lane);
void lane_close(struct stager *first, struct lane *lane);

int lane_copy(struct stager *first, struct lane *lane, const tutti_op *op, tutti_request *request);

/* Completes finished copies and returns their number. */
int lane_move(struct stager *first);

/* Cancels a copy's request, if the copy has not started and will not write to the caller's memory. */
int lane_cancel(struct stager *first, const tutti_request *request);

/* Frees everything, after a bounded wait for pending copies. */
void lane_end(struct stager *first);

#endif
