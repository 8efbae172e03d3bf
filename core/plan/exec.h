/* Executor: runs one plan over one point-to-point table.  No other file knows both.
 *
 * An exec is created for a plan and may run many times, once at a time.  It never blocks: exec_advance issues the steps
 * that may start, the backend completes requests through exec_complete, and `left` counts down to zero. */
#ifndef EXEC_H
#define EXEC_H

#include <tutti/backend.h>

#include "base/reduce.h"
#include "base/user_op.h"
#include "plan/plan.h"

/* The parameters of one run of a plan. */
struct exec_run {
    const tutti_backend *backend;
    void *state;            /* the backend's state of the group */
    const tutti_tensor *in; /* n_in and n_out tensors; borrowed for the whole run */
    const tutti_tensor *out;
    int n_in, n_out;
    tutti_dtype dtype;
    tutti_reduce_op op;
    double factor;
    uint64_t tag; /* tag of slot 0 */
    uint64_t fingerprint;
    bool awaited; /* a caller waits for this run: the backend may poll for a message if no other step can run */
    void *owner;  /* owner of each pending request; not NULL */
};

struct exec {
    const struct plan *plan;
    struct exec_run run;
    reduce_fn reduce;       /* of the library's ops */
    struct user_op user_op; /* of the program's; fn is NULL otherwise */
    int64_t element;        /* size of an element in bytes */
    char *scratch;
    size_t scratch_bytes;
    tutti_request *requests; /* one per step */
    uint32_t *waits;         /* per step: the number of steps it still waits for */
    uint32_t *messages;      /* queue of sends and receives that may be issued */
    uint32_t *locals;        /* queue of local steps that may run */
    uint32_t messages_head, messages_tail, locals_head, locals_tail;
    uint32_t left;          /* steps that have not completed */
    uint32_t in_flight;     /* requests that the backend owns */
    int status;             /* first failure; its message was set as the thread's error message at that time */
    tutti_request *failed;  /* the request that failed, or NULL */
    struct exec *next_free; /* next in the plan cache */
};

struct exec *exec_new(const struct plan *plan);
void exec_free(struct exec *exec);

/* Starts a run with the parameters in exec->run.  Returns NO_MEMORY, or TUTTI_OK with the first steps queued (call
 * exec_advance). */
int exec_start(struct exec *exec);

/* Issues all sends and receives that may start, then runs one local step.  Returns true if more local steps are
 * queued. */
bool exec_advance(struct exec *exec);

/* Handles the completion of a request of this exec by the backend. */
void exec_complete(struct exec *exec, tutti_request *request, int status);

/* True if all steps have completed, or if the run has failed and the backend owns no request of it. */
static inline bool exec_ended(const struct exec *exec)
{
    return exec->left == 0 || (exec->status != TUTTI_OK && exec->in_flight == 0);
}

/* Stops issuing steps and cancels the requests that the backend can cancel. */
void exec_cancel(struct exec *exec, int status);

/* Calls visit for each request that the backend owns. */
void exec_each_pending(const struct exec *exec, void (*visit)(const tutti_request *request, void *argument),
                       void *argument);

#endif
