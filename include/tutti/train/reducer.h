/* Tutti training: averages gradients over the ranks while the backward pass runs, as torch's DistributedDataParallel
 * does.
 *
 *     tutti_parameter list[] = {{"weight", tutti_view(w, 100), tutti_view(dw, 100)}, ..};
 *     tutti_reducer *reducer;
 *     TUTTI_CHECK(tutti_reducer_create(list, 2, NULL, &reducer));
 *     for (..) {
 *         for (each layer, last one first) {
 *             .. compute dw ..
 *             TUTTI_CHECK(tutti_reducer_ready(reducer, i));
 *         }
 *         TUTTI_CHECK(tutti_reducer_wait(reducer));
 *         .. update w by dw, which is now the average over all ranks ..
 *     }
 *
 * Buckets: gradients are collected in buckets, one after another.  A full bucket's all_reduce starts at once and runs
 * beside the program.  At first the buckets take the parameters in reverse order of the list, and after the first
 * iteration in the order in which rank 0 reported them.  A bucket holds gradients of one dtype and device.
 *
 * Iteration: from the first report (tutti_reducer_ready, tutti_reducer_skip) to the end of tutti_reducer_wait.  Each
 * gradient is reported once, in any order, which may differ between ranks.  Buckets start in the same order on all
 * ranks: one that is full early waits for those before it.
 *
 * Order rule: the reducer's operations are collectives of its group, and start within ready and wait.  From the first
 * report to the end of wait the program makes no other collective calls on that group.  A program that needs them, or
 * two reducers whose iterations overlap, give each reducer a group of its own (tutti_new_group with all ranks).
 *
 * Memory: CPU gradients are copied into buckets and back, unless they are views (gradient_as_bucket_view): then the
 * program computes them in the buckets.  CUDA gradients are reduced in place in the program's memory, and a bucket's
 * gradients start as one operation.
 *
 * CUDA: the ranks agree by small messages in host memory.  If the group serves CUDA alone, the reducer makes a group of
 * backend tcp for them.  Gradients are reduced behind what opts->stream holds when they are reported, and
 * tutti_reducer_wait orders that stream behind the results without waiting for them on the host.  Not available for
 * CUDA gradients: views, compression, hooks, join, divide_by_active.
 *
 * Failures: an error that concerns all ranks is returned on all of them, with the same message.  Unless the group has
 * failed, the next iteration may follow, and gradients in the program's memory are unchanged; views and CUDA gradients
 * are undefined.  What error_feedback keeps is then that of the failed iteration.  After the group has failed all
 * gradients are undefined.
 *
 * Results repeat from run to run if the ranks report in the same order in the first iteration; with
 * TUTTI_DETERMINISTIC=1 they depend on neither buckets nor order (except with compression to float8, whose blocks
 * follow the buckets).
 *
 * Threads: tutti_reducer_ready and tutti_reducer_skip may be called by any threads at the same time, the other
 * functions by one thread while no other function runs. */
#ifndef TUTTI_TRAIN_REDUCER_H
#define TUTTI_TRAIN_REDUCER_H

#include <tutti/train/parameter.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_reducer tutti_reducer;

/* A bucket, as hooks see it.  The fields are for reading. */
typedef struct tutti_bucket {
    tutti_tensor tensor; /* this rank's gradients, one after another; data is NULL if they are reduced in the program's
                            memory (CUDA) or cast while they are copied (compress to 16 bits, without views) */
    int index, n_buckets;
    int generation;        /* 0; 1 after the buckets have been rebuilt */
    int n;                 /* parameters in the bucket */
    const int *parameter;  /* their indices in the list */
    const int64_t *offset; /* where each begins in the tensor, in elements */
    tutti_group *group;
    int64_t timeout_ms; /* for the hook's operations, as in tutti_opts */
} tutti_bucket;

/* Reduces a bucket in place of all_reduce.  It must leave the sum over all ranks in bucket->tensor; the reducer then
 * divides.  It is called hook_phases + 1 times for a bucket, with phase 0, 1, ..  In each phase but the last it may
 * start one operation on bucket->group with async_op, and store the Work in *work, which the reducer waits for before
 * it calls the next phase.  The last phase starts none.  So phase 0 begins what phase 1 continues, without blocking.
 *
 * The reducer makes the calls in the same order on all ranks, within tutti_reducer_ready, tutti_reducer_wait and
 * tutti_reducer_join, one at a time.  Phases of other buckets may come between two phases of one.  State between calls
 * belongs into argument, by bucket->index, which is below the number of parameters.
 *
 * A rank that has joined calls it with a tensor of zeros.  If it returns an error, it has set tutti_last_error(); the
 * reducer then aborts the group with that message. */
typedef int (*tutti_reducer_hook)(tutti_bucket *bucket, int phase, void *argument, tutti_work **work);

typedef struct tutti_reducer_opts {
    tutti_group *group;           /* NULL: the default group */
    void *stream;                 /* CUDA: a cudaStream_t, on which gradients are computed and used */
    int64_t bucket_bytes;         /* a bucket is full once it has this size; 0: 25 MiB */
    int64_t first_bucket_bytes;   /* the same for the first bucket of a dtype, which starts first; 0: 1 MiB */
    int64_t timeout_ms;           /* of each operation; 0: the group's */
    bool sum;                     /* add up gradients instead of averaging them */
    bool no_broadcast;            /* do not broadcast rank 0's values */
    bool find_unused;             /* gradients may stay unreported: see tutti_reducer_wait */
    bool gradient_as_bucket_view; /* gradients are in the buckets: see tutti_reducer_gradient */
    bool keep_order;              /* do not rebuild the buckets after the first iteration */
    bool move_views;              /* rebuild them even if gradients are views, whose addresses then change */
    bool join;                    /* ranks may run out of batches: see tutti_reducer_join */
    bool divide_by_active;        /* average over the ranks that have not joined, instead of over all */
    tutti_dtype compress;         /* send float32 and float64 gradients as TUTTI_BFLOAT16, TUTTI_FLOAT16 or
                                     TUTTI_FLOAT8_E4M3FN; 0: as they are */
    bool error_feedback;          /* add to each gradient what compression lost of it in the last iteration; not what
                                     the all_reduce of 16-bit numbers rounds */
    tutti_reducer_hook hook;      /* the program's own reduction; excludes compress */
    void *hook_argument;
    int hook_phases; /* number of the hook's phases that start an operation, up to 16; 0: 1 */
} tutti_reducer_opts;

/* Makes a reducer.  All ranks of the group call this with the same list and options; only data, stream, timeout_ms
 * and hook_argument may differ.  That is checked before anything else is sent.  Then the values of rank 0 replace those
 * of all ranks, unless opts->no_broadcast is set.
 *
 * Errors, on all ranks: MISMATCH (lists or options differ; the message names the first parameter that does, and both
 * versions), INVALID_ARGUMENT (n below 1; a gradient that is NULL, has a negative numel or the dtype bool, or is on a
 * device without a backend in the group; options that are negative or exclude each other; the message names the rank
 * and the parameter), NO_MEMORY (for buckets), those of all operations.  On this rank alone: INVALID_ARGUMENT (reducer
 * is NULL, this rank is not a member of the group). */
TUTTI_API int tutti_reducer_create_sized(const tutti_parameter *parameters, size_t parameter_bytes, int n,
                                         const tutti_reducer_opts *opts, size_t opts_bytes, tutti_reducer **reducer);
static inline int tutti_reducer_create(const tutti_parameter *parameters, int n, const tutti_reducer_opts *opts,
                                       tutti_reducer **reducer)
{
    return tutti_reducer_create_sized(parameters, sizeof *parameters, n, opts, sizeof *opts, reducer);
}

/* Reports that the gradient of parameter i is complete, and starts its bucket if that is full.  The program leaves the
 * gradient alone until tutti_reducer_wait has returned.  Any thread may call.
 *
 * Errors: INVALID_ARGUMENT (i is not in the list; the gradient was reported before in this iteration; both change
 * nothing), and those of operations that could not start, which tutti_reducer_wait returns again. */
TUTTI_API int tutti_reducer_ready(tutti_reducer *reducer, int i);

/* Reports that parameter i gets no gradient in this iteration, so that its bucket need not wait for the end of the
 * iteration.  It counts as zero.  Errors: INVALID_ARGUMENT (find_unused is not set), and those of
 * tutti_reducer_ready. */
TUTTI_API int tutti_reducer_skip(tutti_reducer *reducer, int i);

/* Ends the iteration: waits for all buckets.  Then the gradients are the averages, or sums, on all ranks.
 *
 * All gradients must have been reported, or find_unused is set: then the ranks agree on the gradients that no rank
 * reported, which are left as they are.  A gradient that only some ranks reported counts as zero on the others, and
 * gets the result on all.  (CUDA: the program sets the gradient to zero before.)
 *
 * Errors: INVALID_ARGUMENT on all ranks (a rank did not report a gradient and find_unused is not set; the message names
 * rank and parameters), those of all operations. */
TUTTI_API int tutti_reducer_wait(tutti_reducer *reducer);

/* Turns reduction off (false) or on (true), for the accumulation of gradients over several iterations, as torch's
 * no_sync.  While it is off, ready and wait send nothing, and the program adds to the gradients that are there.  The
 * first iteration after it has been turned on again reduces the accumulated gradients.  All ranks do the same.  Errors:
 * INVALID_ARGUMENT (in the middle of an iteration). */
TUTTI_API int tutti_reducer_set_sync(tutti_reducer *reducer, bool sync);

/* Takes part in the other ranks' iterations, with gradients of zero, until all ranks have called this: for ranks that
 * have run out of batches.  Every rank calls it after its last iteration.  Then the values of the rank that made most
 * iterations replace those of all ranks, so that all end with the same model.  The divisor is the number of all ranks,
 * unless divide_by_active is set.  The gradients of this rank are undefined afterwards.
 *
 * Errors: INVALID_ARGUMENT (opts.join is not set; in the middle of an iteration), those of all operations. */
TUTTI_API int tutti_reducer_join(tutti_reducer *reducer);

/* Returns the tensor of the gradient of parameter i: with gradient_as_bucket_view its place in a bucket, where the
 * program computes it, else the one that was given to create.  It is zero at first.  With move_views the place changes
 * once, in the tutti_reducer_wait of the first iteration; the contents move along.  The memory is tutti_alloc's, which
 * the ranks of a host read in place.  numel is -1 if i is not in the list. */
TUTTI_API tutti_tensor tutti_reducer_gradient(const tutti_reducer *reducer, int i);

/* Returns bucket k, or NULL if there are fewer.  Buckets are numbered in the order in which they start.  Valid until
 * the next call of tutti_reducer_wait. */
TUTTI_API const tutti_bucket *tutti_reducer_bucket(const tutti_reducer *reducer, int k);

/* Returns the bytes that this rank passed to operations on gradients in all iterations so far: a measure of what
 * compression saves.  The two operations of a float8 bucket send what one all_reduce of its bytes does, and count as
 * one.  Hooks and the messages by which ranks agree do not count. */
TUTTI_API int64_t tutti_reducer_bytes(const tutti_reducer *reducer);

/* Frees the reducer, between iterations and before its group.  In the middle of an iteration it waits up to 2 s for
 * operations that it has started, and then aborts the group.  NULL is ignored. */
TUTTI_API void tutti_reducer_destroy(tutti_reducer *reducer);

#ifdef __cplusplus
}
#endif
#endif
