/* What save and load share: the program's states, and the manifest that describes a sharded optimizer with them. */
#ifndef TRAIN_CHECKPOINT_STATES_H
#define TRAIN_CHECKPOINT_STATES_H

#include <tutti/train/checkpoint.h>

#include "checkpoint_format.h"
#include "sharded_state.h"

/* The arguments of a call.  State 0 is the shard's values. */
struct checkpoint_call {
    struct tutti_sharded *sharded;
    const char *folder;
    tutti_checkpoint_opts opts;
    int n; /* states */
    tutti_checkpoint_state *state;
};

/* Reads and checks the arguments, and compares the states of all ranks.  All ranks call it and get the same result. The
 * caller frees the call in any case.  `who` begins messages. */
int checkpoint_call_read(struct checkpoint_call *call, const char *who, const tutti_checkpoint_state *states,
                         size_t state_bytes, int n_states);

void checkpoint_call_free(struct checkpoint_call *call);

/* Fills a manifest with the model, the states, and the ranges of all ranks.  Returns false without memory.  The caller
 * frees it in any case. */
bool checkpoint_describe(const struct checkpoint_call *call, struct checkpoint_manifest *manifest);

#endif
