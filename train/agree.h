/* Agreement of all ranks on one result, so that no rank continues alone. */
#ifndef TRAIN_AGREE_H
#define TRAIN_AGREE_H

#include <tutti/tutti.h>

/* Returns TUTTI_OK on all ranks of the group if status is TUTTI_OK on all.  Otherwise returns, on all ranks, status and
 * tutti_last_error() of the lowest rank on which it is not, as "rank 2: ..".  All ranks call it.  If the group fails
 * meanwhile, returns this rank's own error, or else the group's. */
int agree_on_status(tutti_group *group, int64_t timeout_ms, int status);

/* Sets the error message for a line, counted from 0, in which this rank's text differs from rank 0's.  A line that is
 * missing is empty.  Returns MISMATCH. */
typedef int (*agree_refuse)(const char *who, int number, const char *first, const char *own);

/* Returns MISMATCH on all ranks if a rank's text differs from rank 0's, with the message of `refuse` for the first line
 * that does.  A line holds one item.  The text is sent only if hashes of it differ.  status is this rank's so far: if
 * it is an error on any rank, the texts are not compared, and the result is that of agree_on_status.  text may be NULL
 * then. */
int agree_on_lines(tutti_group *group, int64_t timeout_ms, const char *who, int status, const char *text,
                   agree_refuse refuse);

/* Does the same with a message that begins with `who` and holds the line of both ranks. */
int agree_on_text(tutti_group *group, int64_t timeout_ms, const char *who, int status, const char *text);

#endif
