/* Tutti training: which samples of a data set each rank takes, as torch's DistributedSampler says.
 *
 * A sampler is a plain value.  It holds no memory: the shuffled order is a permutation that is computed where it is
 * needed, so a data set of any size costs nothing, and a position can be resumed at once.
 *
 *     tutti_sampler sampler;
 *     TUTTI_CHECK(tutti_sampler_init(&sampler, rows, &(tutti_sampler_opts){.shuffle = true, .seed = 7}));
 *     for (int epoch = 0; epoch < epochs; epoch++) {
 *         tutti_sampler_set_epoch(&sampler, epoch);
 *         for (int64_t row; tutti_sampler_next(&sampler, &row);) use(row);
 *     }
 *
 * Rank r of n takes places r, r + n, r + 2n, .. of the epoch's order, so all ranks take the same number of samples.
 * Where the data set's size is not a multiple of n, the order is padded by its own beginning, or its end is dropped.
 * All ranks use the same options; nothing is sent.
 *
 * Resuming: save epoch and position (tutti_sampler_position) with the model, and pass them to tutti_sampler_resume. The
 * position counts the samples that all ranks have taken, so another number of ranks can continue from it.
 *
 * Threads: a sampler is used by one thread at a time. */
#ifndef TUTTI_TRAIN_SAMPLER_H
#define TUTTI_TRAIN_SAMPLER_H

#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_sampler_opts {
    tutti_group *group; /* the ranks that share the data set; NULL: the default group, if there is one */
    int rank;           /* used only if world_size is set; overrides group */
    int world_size;     /* 0: rank and world size are the group's; without a group, rank 0 of 1 */
    bool shuffle;       /* another order in each epoch; else the data set's own */
    bool drop_last;     /* drop the samples that do not fill all ranks, instead of padding */
    uint64_t seed;      /* the same on all ranks */
} tutti_sampler_opts;

/* The fields are for reading. */
typedef struct tutti_sampler {
    int64_t size;  /* samples in the data set */
    int64_t total; /* samples that all ranks together take in an epoch: a multiple of world_size */
    int64_t at;    /* samples that all ranks together have taken in this epoch */
    int64_t epoch;
    uint64_t seed;
    int rank, world_size;
    bool shuffle;
} tutti_sampler;

/* Makes a sampler of a data set with `size` samples, at the start of epoch 0.
 *
 * Errors: INVALID_ARGUMENT (sampler is NULL; size is negative; rank is outside 0 .. world_size - 1; this rank is not a
 * member of the group; there are fewer samples than ranks and drop_last is set, so that no rank would get any). */
TUTTI_API int tutti_sampler_init_sized(tutti_sampler *sampler, int64_t size, const tutti_sampler_opts *opts,
                                       size_t opts_bytes);
static inline int tutti_sampler_init(tutti_sampler *sampler, int64_t size, const tutti_sampler_opts *opts)
{
    return tutti_sampler_init_sized(sampler, size, opts, sizeof *opts);
}

/* Returns how many samples this rank takes in an epoch; the same on all ranks. */
TUTTI_API int64_t tutti_sampler_length(const tutti_sampler *sampler);

/* Returns the index of the i-th sample that this rank takes in the sampler's epoch, in 0 .. size - 1; -1 if i is
 * outside 0 .. length - 1. */
TUTTI_API int64_t tutti_sampler_index(const tutti_sampler *sampler, int64_t i);

/* Stores the index of this rank's next sample and advances.  Returns false at the end of the epoch. */
TUTTI_API bool tutti_sampler_next(tutti_sampler *sampler, int64_t *index);

/* Goes to the start of an epoch. */
TUTTI_API void tutti_sampler_set_epoch(tutti_sampler *sampler, int64_t epoch);

/* Returns how many samples all ranks together have taken in this epoch, if they all have taken as many as this one. */
TUTTI_API int64_t tutti_sampler_position(const tutti_sampler *sampler);

/* Continues after the first `position` samples of an epoch.  If the world size is not the one that the position was
 * saved with and does not divide it, up to world_size - 1 samples are taken twice.  Errors: INVALID_ARGUMENT (position
 * is negative or beyond the epoch's end). */
TUTTI_API int tutti_sampler_resume(tutti_sampler *sampler, int64_t epoch, int64_t position);

#ifdef __cplusplus
}
#endif
#endif
