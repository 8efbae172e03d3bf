/* Runs one plan over one point-to-point table: the only file that knows both.
 *
 * An exec is made for a plan and may be run many times, once at a time.  It never waits: exec_advance issues what may
 * begin, the backend completes requests through exec_complete, and `left` counts down to zero.
 */
#ifndef EXEC_H
#define EXEC_H

#include <tutti/backend.h>

#include "base/reduce.h"
#include "plan/plan.h"

/* What differs from one run of a plan to the next. */
struct exec_run {
    const tutti_backend *backend;
    void *state;            /* the backend's group */
    const tutti_tensor *in; /* n_in and n_out tensors; valid for the whole run */
    const tutti_tensor *out;
    int n_in, n_out;
    tutti_dtype dtype;
    tutti_reduce_op op;
    double factor;
    uint64_t tag; /* of slot 0 */
    uint64_t fingerprint;
    bool awaited; /* its caller waits: a message may be looked for where nothing else can be done */
    void *owner;  /* what each pending request's owner is; not NULL */
};

struct exec {
    const struct plan *plan;
    struct exec_run run;
    reduce_fn reduce;
    int64_t element; /* bytes */
    char *scratch;
    size_t scratch_bytes;
    tutti_request *requests; /* one a step */
    uint32_t *waits;         /* a step: how many it still waits for */
    uint32_t *talk;          /* queue of sends and receives that may be issued */
    uint32_t *compute;       /* queue of local steps that may be done */
    uint32_t talk_head, talk_tail, compute_head, compute_tail;
    uint32_t left;          /* steps not done */
    uint32_t in_flight;     /* requests with the backend */
    int status;             /* first failure; its sentence is the thread's error text when it is found */
    tutti_request *failed;  /* the request it came from, or NULL */
    struct exec *next_free; /* the cache's */
};

struct exec *exec_new(const struct plan *plan);
void exec_free(struct exec *exec);

/* Begins a run, as exec->run says: NO_MEMORY, or TUTTI_OK with the first steps queued (call exec_advance). */
int exec_start(struct exec *exec);

/* Issues all sends and receives that may begin, then does one local step.  Returns whether more is queued. */
bool exec_advance(struct exec *exec);

/* The backend has ended a request of this exec. */
void exec_complete(struct exec *exec, tutti_request *request, int status);

/* Nothing is left to do, or it has failed and nothing is with the backend any more. */
static inline bool exec_ended(const struct exec *exec)
{
    return exec->left == 0 || (exec->status != TUTTI_OK && exec->in_flight == 0);
}

/* Stops issuing and takes back what the backend gives back. */
void exec_cancel(struct exec *exec, int status);

/* Calls visit for each request that is with the backend. */
void exec_each_pending(const struct exec *exec, void (*visit)(const tutti_request *request, void *argument),
                       void *argument);

#endif
