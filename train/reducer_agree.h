/* What the ranks of a reducer agree on: that all of them can go on, and that their lists are alike. */
#ifndef TRAIN_REDUCER_AGREE_H
#define TRAIN_REDUCER_AGREE_H

#include "reducer_state.h"

/* Returns TUTTI_OK on all ranks if status is TUTTI_OK on all.  Otherwise returns, on all ranks, status and text of the
 * lowest rank on which it is not.  All ranks call it. */
int reducer_agree(struct tutti_reducer *reducer, int status, const char *text);

/* The second half of it, if the ranks know already that one of them has failed. */
int reducer_exchange_failures(struct tutti_reducer *reducer, int status, const char *text);

/* Does the same as reducer_agree, and then returns MISMATCH on all ranks if their lists or options differ. */
int reducer_agree_on_list(struct tutti_reducer *reducer, int status, const char *text);

#endif
