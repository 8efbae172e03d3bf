/* What the ranks of a reducer agree on: that all of them can go on, and that their lists are alike. */
#ifndef TRAIN_REDUCER_AGREE_H
#define TRAIN_REDUCER_AGREE_H

#include "reducer_state.h"

/* Does what agree_on_status does, with a message that begins with "reducer: ". */
int reducer_agree(struct tutti_reducer *reducer, int status);

/* Does the same, and then returns MISMATCH on all ranks if their lists or options differ. */
int reducer_agree_on_list(struct tutti_reducer *reducer, int status);

#endif
