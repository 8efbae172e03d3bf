/* Tutti training: an optimizer whose state is divided among the ranks (ZeRO-1 and ZeRO-2), as torch's
 * ZeroRedundancyOptimizer and DeepSpeed do.
 *
 *     tutti_parameter list[] = {{"weight", tutti_view(w, 100), tutti_view(dw, 100)}, ..};
 *     tutti_sharded *sharded;
 *     TUTTI_CHECK(tutti_sharded_create(list, 2, NULL, &sharded));
 *     tutti_tensor value = tutti_sharded_value(sharded), gradient = tutti_sharded_gradient(sharded);
 *     float *x = value.data, *g = gradient.data, *momentum = calloc(value.numel, sizeof(float));
 *     for (..) {
 *         for (each layer, last one first) {
 *             .. compute dw ..
 *             TUTTI_CHECK(tutti_sharded_ready(sharded, i));
 *         }
 *         TUTTI_CHECK(tutti_sharded_wait(sharded));
 *         for (int64_t k = 0; k < value.numel; k++) x[k] -= rate * (momentum[k] = 0.9f * momentum[k] + g[k]);
 *         TUTTI_CHECK(tutti_sharded_update(sharded));
 *         TUTTI_CHECK(tutti_sharded_wait_values(sharded));
 *     }
 *
 * Parts: the parameters form one flat list of elements, which is cut into buckets of whole parameters.  Each bucket is
 * divided evenly among the ranks.  A rank owns one part of each bucket: its shard.  It keeps the shard's values and
 * averaged gradients, and the optimizer's state for them, so that all of these take 1/n of the memory on n ranks.  The
 * number of elements need not be a multiple of n; shards then differ in size, and may be empty.
 *
 * Gradients: tutti_sharded_ready copies a gradient into its bucket.  A full bucket's reduce_scatter starts at once and
 * runs beside the program.  The gradient's memory may be used again as soon as the call returns.  So all gradients may
 * share one piece of memory (ZeRO-2).  To keep and accumulate gradients in the program (ZeRO-1), report them after the
 * last of its batches only.
 *
 * Values: tutti_sharded_update starts an all_gather per bucket, those of the first parameters first.  The program may
 * wait for each parameter just before it needs it.
 *
 * Order rule: all operations are collectives of the sharded optimizer's group, and start within ready, wait, update and
 * create.  Between the first report and the end of tutti_sharded_wait the program makes no other collective calls on
 * that group; a program that needs them makes a group for it (tutti_new_group with all ranks).
 *
 * Results: the same as those of an unsharded optimizer that averages gradients by all_reduce, to rounding; with
 * TUTTI_DETERMINISTIC=1 bit for bit.
 *
 * Precision: shards are float32 or float64.  Parameters and gradients may be narrower: float16 or bfloat16.  They are
 * sent as they are, and the shard keeps the values with all bits.  float32 parameters of a float32 shard are exact.
 *
 * Devices: CPU tensors.
 *
 * Failures: an error that concerns all ranks is returned on all of them, with the same message.  Unless the group has
 * failed, the next iteration may follow.
 *
 * Threads: one thread at a time uses a sharded optimizer. */
#ifndef TUTTI_TRAIN_SHARDED_H
#define TUTTI_TRAIN_SHARDED_H

#include <tutti/train/parameter.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_sharded tutti_sharded;

typedef struct tutti_sharded_opts {
    tutti_group *group;   /* NULL: the default group */
    int64_t bucket_bytes; /* a bucket is full once its gradients have this size; 0: 25 MiB */
    int64_t timeout_ms;   /* of each operation; 0: the group's */
    tutti_dtype dtype;    /* of the shard: TUTTI_FLOAT32 or TUTTI_FLOAT64; 0: TUTTI_FLOAT32 */
    bool sum;             /* add up gradients instead of averaging them */
    bool unused_as_zero;  /* a gradient that is not reported counts as zero, instead of being an error */
    bool values_as_views; /* parameters are in the buckets: see tutti_sharded_parameter.  Saves a copy of the model */
} tutti_sharded_opts;

/* Makes a sharded optimizer.  All ranks of the group call this with the same list and options.  That is checked before
 * anything else is sent.  Then rank 0's values replace those of all ranks.
 *
 * Errors, on all ranks: MISMATCH (lists or options differ; the message names the first parameter that does, and both
 * versions), INVALID_ARGUMENT (n below 1; a value or gradient that is NULL or has a negative numel; a gradient with
 * another numel than its value; a parameter wider than the shard's dtype; an unknown dtype or negative option; the
 * message names the rank and the parameter), UNSUPPORTED (a tensor on another device, a dtype other than float16,
 * bfloat16, float32 and float64), NO_MEMORY (for the buckets or the shard; the message has the size), those of all
 * operations.  On this rank alone: INVALID_ARGUMENT (sharded is NULL, this rank is not a member of the group). */
TUTTI_API int tutti_sharded_create_sized(const tutti_parameter *parameters, size_t parameter_bytes, int n,
                                         const tutti_sharded_opts *opts, size_t opts_bytes, tutti_sharded **sharded);
static inline int tutti_sharded_create(const tutti_parameter *parameters, int n, const tutti_sharded_opts *opts,
                                       tutti_sharded **sharded)
{
    return tutti_sharded_create_sized(parameters, sizeof *parameters, n, opts, sizeof *opts, sharded);
}

/* ---- gradients --------------------------------------------------------------------------------------------- */

/* Reports that the gradient of parameter i is complete: copies it, and starts its bucket if that is full.  Each
 * gradient is reported once in an iteration, in any order; in reverse order of the list, buckets start earliest and
 * take least memory.
 *
 * Errors: INVALID_ARGUMENT (i is not in the list; the gradient was reported before in this iteration; both change
 * nothing), NO_MEMORY, and those of operations, which tutti_sharded_wait returns again. */
TUTTI_API int tutti_sharded_ready(tutti_sharded *sharded, int i);

/* Ends the iteration: waits until the shard's gradients are the average, or sum, over all ranks.
 *
 * Errors: INVALID_ARGUMENT on all ranks (a rank did not report a gradient, and unused_as_zero is not set; the message
 * names the rank and the first such parameter), those of all operations.  After an error the shard's gradients are
 * undefined; values are unchanged. */
TUTTI_API int tutti_sharded_wait(tutti_sharded *sharded);

/* Says whether tutti_sharded_wait adds the iteration's gradients to those in the shard, instead of replacing them: for
 * the accumulation of gradients over several iterations without their full memory.  To begin, turn it off for the first
 * iteration and on for those after it.  Errors: INVALID_ARGUMENT (in the middle of an iteration). */
TUTTI_API int tutti_sharded_set_accumulate(tutti_sharded *sharded, bool accumulate);

/* ---- the shard --------------------------------------------------------------------------------------------- */

/* Return the values and the gradients of this rank's shard: tensors of equal length, in the same order.  The program
 * updates the values in place, and may change the gradients, say to clip them.  Valid until destroy. */
TUTTI_API tutti_tensor tutti_sharded_value(const tutti_sharded *sharded);
TUTTI_API tutti_tensor tutti_sharded_gradient(const tutti_sharded *sharded);

/* A part of the shard that belongs to one parameter. */
typedef struct tutti_sharded_piece {
    int parameter; /* index in the list */
    int64_t begin; /* the piece's first element in the parameter */
    int64_t numel; /* at least 1 */
    int64_t at;    /* its first element in the shard */
} tutti_sharded_piece;

/* Stores the k-th piece of the shard, for optimizers that treat parameters differently.  Returns false if there are
 * fewer pieces.  Pieces are in the shard's order and cover it. */
TUTTI_API bool tutti_sharded_get_piece(const tutti_sharded *sharded, int k, tutti_sharded_piece *piece);

/* ---- values ------------------------------------------------------------------------------------------------ */

/* Starts to gather the shards' values into the parameters of all ranks.  The program may change the shard again at
 * once. It waits for a parameter before it uses it: until then the parameter has its old or its new values, or some of
 * both.
 *
 * Errors: INVALID_ARGUMENT (gradients were reported since the last tutti_sharded_wait), those of all operations. */
TUTTI_API int tutti_sharded_update(tutti_sharded *sharded);

/* Wait until parameter i, or all parameters, have the values of the last tutti_sharded_update.  Return at once if there
 * was none.  Errors: INVALID_ARGUMENT (i is not in the list), those of all operations. */
TUTTI_API int tutti_sharded_wait_value(tutti_sharded *sharded, int i);
TUTTI_API int tutti_sharded_wait_values(tutti_sharded *sharded);

/* Returns the tensor of parameter i: the one that was given to create, or with values_as_views its place in a bucket.
 * create copies the given value there, unless its data is NULL: then it is zero.  numel is -1 if i is not in the list.
 * Valid until destroy. */
TUTTI_API tutti_tensor tutti_sharded_parameter(const tutti_sharded *sharded, int i);

/* Frees the sharded optimizer before its group.  Waits for operations that it has started; if a rank does not take part
 * in them, it aborts the group after 2 s.  NULL is ignored. */
TUTTI_API void tutti_sharded_destroy(tutti_sharded *sharded);

#ifdef __cplusplus
}
#endif
#endif
