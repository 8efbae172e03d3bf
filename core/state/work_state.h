/* The state of an operation under way: data alone.  progress/work.h describes how a Work starts and ends. */
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

/* The message that a receive or probe has found. */
struct work_message {
    int source; /* as the caller numbers ranks; -1: none yet */
    int tag;
    int64_t received; /* bytes */
};

/* The fields of a pending Work take ten cache lines.  Those of one that has ended come first and take two: see
 * work_end_at_once. */
struct tutti_work {
    /* All that the functions on an ended Work use, with the beginning of `op`. */
    SLIST_ENTRY(tutti_work) spare_link;
    struct engine *engine;
    int references;
    int status;
    atomic_bool ended;
    int event_fd;
    char *text;  /* the error message */
    void *lists; /* tensors and splits that do not fit into `tensors`, one allocation */
    int64_t duration_ns;
    struct work_message found;
    void (*callback)(struct tutti_work *work, void *argument);
    void *argument;
    tutti_reduce_op user_op; /* held until the Work is freed; 0: not an op of the program */
    tutti_op op;             /* of an ended Work only kind and sequence are valid */

    struct tutti_group *group;     /* NULL: only the request is in use (dispatch_at_once) */
    TAILQ_ENTRY(tutti_work) link;  /* in the engine's active or callbacks list */
    int64_t start_ns, deadline_ns; /* next to `link`: a check of thousands of works reads these and little else */
    int64_t asked_ns;              /* when it last asked peers for their positions, or went on by itself */
    bool started;                  /* dispatched to a backend; false while blocked by an earlier work */
    bool enlisted;                 /* counted in its group's n_enlisted */
    bool disjoint;                 /* shares no memory with collectives that were pending when it was issued */
    bool queued;                   /* in the runnable list */
    bool async;                    /* counted in engine->n_async */
    bool is_plain;                 /* a message of message.c: it has no plan, parts, parent, copies or tool */
    bool awaited;                  /* a caller sleeps until it ends */
    bool point_to_point;
    uint32_t record; /* handle of its record; 0: none */
    bool group_rank;
    bool has_moved; /* gone on since it last asked */
    bool checked;   /* its deadline has been, and engine->due_ns is not later than its next check */
    bool warned;
    bool postponed;                   /* its timeout came before it could ask its peers: it has had a little longer */
    bool draining;                    /* failed, but the backend still uses its memory: it ends once that is released */
    int failing;                      /* status of a failed request: the work ends with it when it next runs */
    TAILQ_ENTRY(tutti_work) run_link; /* in the engine's runnable list */
    TAILQ_ENTRY(tutti_work) group_link;    /* the group's works that have not ended, in order of issue */
    int parts;                             /* parent only: number of parts that have not ended */
    struct tutti_work *parent;             /* coalesced or staged operation; it ends when its last part has */
    struct packing *packing;               /* where the results go, if several small operations were packed */
    struct stage *stage;                   /* parent only: its parts work on these copies in host memory */
    const struct backend_entry *entry;     /* staged part only: the one entry that it may use */
    const struct backend_entry *comparing; /* exec compares the ranks' calls before the work goes to this entry */
    struct work_outs {
        int *source, *tag;
        int64_t *received;
    } outs; /* the caller's variables for `found`, or NULL */

    /* dispatch_at_once borrows these fields before the Work is in use.  The fields above are cleared or filled after
     * that. */
    uint64_t fingerprint;
    struct exec *exec; /* a running plan, taken from `cached` */
    struct plan_cache_entry *cached;
    const tutti_backend *backend; /* the backend of the request, if exec is NULL */
    void *state;
    tutti_request request;                     /* filled when the work is dispatched; owner NULL: no backend has it */
    tutti_tensor tensors[WORK_INLINE_TENSORS]; /* of an async op */
};

/* A receive whose backend gets it later than the call (dispatch/message.c): what it was called with, but for what is in
 * its work already. */
struct deferred_receive {
    struct tutti_work *work; /* filled up to the tag of its op */
    struct tutti_group *group;
    void *data;
    int64_t timeout_ms; /* as in the call */
    int *source, *received_tag;
    uint32_t record;
    bool group_rank;
};

#endif
