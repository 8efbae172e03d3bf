/* The versions of the loops (reduce_version.h) that this processor can run. */
#ifndef BASE_REDUCE_SELECT_H
#define BASE_REDUCE_SELECT_H

#include "base/reduce_version.h"

/* Returns the index-th version that this processor can run, slowest first, or NULL after the last. */
const struct reduce_version *reduce_version_at(int index);

/* Returns the fastest version that this processor can run. */
const struct reduce_version *reduce_version_best(void);

#endif
