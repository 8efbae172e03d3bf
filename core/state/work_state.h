/* The state of an operation under way: data alone.  progress/work.h says how it lives and ends. */
#ifndef WORK_STATE_H
#define WORK_STATE_H

#include <stdatomic.h>
#include <sys/queue.h>
#include <tutti/backend.h>
#include <tutti/tutti.h>

struct packing;
struct engine;
struct exec;
struct stage;
struct tutti_group;
struct plan_cache_entry;

enum { WORK_INLINE_TENSORS = 2 };

struct tutti_work {
    TAILQ_ENTRY(tutti_work) link; /* active or callbacks */
    SLIST_ENTRY(tutti_work) spare_link;
    TAILQ_ENTRY(tutti_work) run_link;   /* runnable */
    TAILQ_ENTRY(tutti_work) group_link; /* the group's works that have not ended, in order of issue */
    struct engine *engine;
    struct tutti_group *group; /* NULL: not a work yet (dispatch_at_once) */
    int references;
    bool started; /* handed to a backend; false while it waits for an earlier one */
    bool apart;   /* its memory does not overlap that of collectives that were pending when it was issued */
    bool queued;  /* in runnable */
    bool async;   /* counted in engine->n_async */
    bool awaited; /* a caller has gone to sleep until it ends */
    bool point_to_point;
    struct tutti_work *parent;         /* of a part of a coalesced or staged operation: ends when its last part has */
    int parts;                         /* of a parent: those that have not ended */
    struct packing *packing;           /* several small operations in one: where their results go */
    struct stage *stage;               /* of a parent whose parts work on copies in host memory */
    const struct backend_entry *entry; /* of a staged part: the only entry it may use */
    bool group_rank;
    atomic_bool ended;
    int status;
    int failing;   /* status of a failed request: the work ends with it in its next turn */
    bool draining; /* it has failed, but the backend still uses its memory: it ends once that is released */
    char *text;    /* the error message */
    void *lists;   /* tensors and splits that do not fit into `tensors`, one allocation */

    const struct backend_entry *comparing; /* exec compares the ranks' calls before the work goes to this entry */

    int64_t start_ns, end_ns, deadline_ns;
    int64_t took_ns;  /* by the backend's own clock; 0: not reported */
    int64_t asked_ns; /* when peers were last asked where they are */
    bool moved;       /* something completed since */
    bool warned;
    int source;
    int tag;          /* a receive's or a probe's: the message's, once it is known */
    int64_t received; /* bytes of it */
    struct work_outs {
        int *source, *tag;
        int64_t *received;
    } outs; /* where the caller wants these */
    int event_fd;
    void (*callback)(struct tutti_work *work, void *argument);
    void *argument;

    tutti_op op;
    tutti_tensor tensors[WORK_INLINE_TENSORS]; /* of an async op */

    /* Lent before it is a work (dispatch_at_once): the fields above are cleared or filled after that. */
    uint64_t fingerprint;
    struct exec *exec; /* a plan that runs, from: */
    struct plan_cache_entry *cached;
    const tutti_backend *backend; /* unless exec is set: one request with this backend */
    void *state;
    tutti_request request; /* filled when the work is dispatched; owner NULL: no backend has it */
};

#endif
