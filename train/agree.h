/* Agreement of all ranks on one result, so that no rank continues alone. */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include <tutti/tutti.h>

/* Returns TUTTI_OK on all ranks of the group if status is TUTTI_OK on all.  Otherwise returns, on all ranks, status and
 * tutti_last_error() of the lowest rank on which it is not, as "rank 2: ..".  All ranks call it.  If the group fails
 * meanwhile, returns this rank's own error, or else the group's. */
int agree_on_status(tutti_group *group, int64_t timeout_ms, int status);

/* Returns MISMATCH on all ranks if a rank's text differs from rank 0's, with the first line that does of both ranks. A
 * line holds one item; `who` begins the message.  status is this rank's so far: if it is an error on any rank, the
 * texts are not compared, and the result is that of agree_on_status.  text may be NULL then. */
int agree_on_text(tutti_group *group, int64_t timeout_ms, const char *who, int status, const char *text);

#endif
