/* Submits several messages in one call. */
#ifndef BATCH_H
#define BATCH_H

#include <tutti/tutti.h>

/* Launches n messages.  Checks all of them before it launches the first one. */
int batch_submit(const tutti_p2p_op *ops, int n, const tutti_opts *opts, tutti_work **works);

#endif
