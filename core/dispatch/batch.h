/* Several messages in one call. */
#ifndef BATCH_H
#define BATCH_H

#include <tutti/tutti.h>

/* Launches n messages.  All are checked before the first one is launched. */
int batch_submit(const tutti_p2p_op *ops, int n, const tutti_opts *opts, tutti_work **works);

#endif
