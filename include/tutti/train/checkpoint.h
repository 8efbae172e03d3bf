/* Tutti training: checkpoints of a sharded optimizer, as torch.distributed.checkpoint makes them.
 *
 *     float *momentum = ..;                       one element for each element of the shard
 *     int64_t step = 0;                           the same on all ranks
 *     tutti_checkpoint_state states[] = {{"momentum", tutti_view(momentum, value.numel)},
 *                                        {"step", tutti_view(&step, 1), .replicated = true}};
 *     int status = tutti_checkpoint_load(sharded, "run1", states, 2, NULL);
 *     if (status != TUTTI_OK && status != TUTTI_ERR_NOT_FOUND) fail();
 *     while (step < steps) {
 *         ..
 *         step++;                             before the save, so that a job that resumes does not repeat the step
 *         if (step % 100 == 0) TUTTI_CHECK(tutti_checkpoint_save(sharded, "run1", states, 2, NULL));
 *     }
 *
 * Contents: the shards' values, and the program's states.  Each rank writes its shard into a file of its own, all at
 * the same time.  Another number of ranks, or another bucket size, can load them: each rank reads the parts that it
 * needs. docs/checkpoint.md describes the files.
 *
 * Folder: one folder holds the checkpoints of one job, numbered from 1.  All ranks see the same folder; hosts share it.
 * One job at a time saves to it: a save fails while another one is under way, if the folder's file system has locks.
 *
 * Crashes: a checkpoint gets its name once all of its files are on disk.  If the job dies or the power fails at any
 * moment, the last complete checkpoint is there.  The next save removes what an unfinished one has left.
 *
 * Checks: every block of data has a checksum, and everything read is checked before it is used.
 *
 * Results: every function returns the same on all ranks, with the same message.  After an error of save there is no new
 * checkpoint, unless the group failed at the end, when the files were complete.  The old ones are complete.  After an
 * error of load shard, states and parameters are unchanged, unless the group failed at the end, while it gathered the
 * parameters.  The group stays usable unless it failed itself.
 *
 * Threads: as for the sharded optimizer. */
#ifndef TUTTI_TRAIN_CHECKPOINT_H
#define TUTTI_TRAIN_CHECKPOINT_H

#include <tutti/train/sharded.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor of the program that belongs to the checkpoint.  CPU, any dtype. */
typedef struct tutti_checkpoint_state {
    const char *name;    /* unique; not "value" */
    tutti_tensor tensor; /* one element for each of the shard, in its order, as optimizers have */
    bool replicated;     /* instead: any number of elements, the same on all ranks.  Rank 0's are written */
} tutti_checkpoint_state;

typedef struct tutti_checkpoint_opts {
    int64_t number; /* load: the checkpoint to load; 0: the latest.  Unused by save */
    int64_t *used;  /* the number of the checkpoint that was saved or loaded is stored here; may be NULL */
    int keep;       /* save: how many checkpoints to keep, with the new one; 0: 2; -1: all */
} tutti_checkpoint_opts;

/* Writes a checkpoint, with the number after the latest one.  Makes the folder if its parent exists.  Then removes old
 * checkpoints.  All ranks call this with the same states and options; n_states may be 0.
 *
 * Errors, on all ranks: INVALID_ARGUMENT (a NULL; a state without a name, with the name "value", with another state's,
 * or with a line break; a name of a state or parameter with more than 4095 bytes; a sharded state with another numel
 * than the shard; a tensor on another device; keep below -1), MISMATCH (the states differ between ranks), SYSTEM (a
 * file or folder cannot be written; the message has the path and the reason, such as "No space left on device"; another
 * job is saving to the folder), NO_MEMORY, those of all operations. */
TUTTI_API int tutti_checkpoint_save_sized(tutti_sharded *sharded, const char *folder,
                                          const tutti_checkpoint_state *states, size_t state_bytes, int n_states,
                                          const tutti_checkpoint_opts *opts, size_t opts_bytes);
static inline int tutti_checkpoint_save(tutti_sharded *sharded, const char *folder,
                                        const tutti_checkpoint_state *states, int n_states,
                                        const tutti_checkpoint_opts *opts)
{
    return tutti_checkpoint_save_sized(sharded, folder, states, sizeof *states, n_states, opts, sizeof *opts);
}

/* Reads a checkpoint into the shard and the states, and gathers the parameters.  All ranks call this with the same
 * states and options.  A state of the checkpoint that is not in the list is skipped.
 *
 * Errors, on all ranks: NOT_FOUND (the folder has no checkpoint, or not this one, or does not exist), MISMATCH (the
 * checkpoint is of another model: the message names the first parameter or state that differs; the states differ
 * between ranks), SYSTEM (a file cannot be read, is cut short or corrupted: the message has its path and the place; a
 * later version wrote it), INVALID_ARGUMENT (as for save; gradients were reported since the last tutti_sharded_wait),
 * NO_MEMORY (a second copy of the shard is needed), those of all operations. */
TUTTI_API int tutti_checkpoint_load_sized(tutti_sharded *sharded, const char *folder,
                                          const tutti_checkpoint_state *states, size_t state_bytes, int n_states,
                                          const tutti_checkpoint_opts *opts, size_t opts_bytes);
static inline int tutti_checkpoint_load(tutti_sharded *sharded, const char *folder,
                                        const tutti_checkpoint_state *states, int n_states,
                                        const tutti_checkpoint_opts *opts)
{
    return tutti_checkpoint_load_sized(sharded, folder, states, sizeof *states, n_states, opts, sizeof *opts);
}

#ifdef __cplusplus
}
#endif
#endif
