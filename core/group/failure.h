/* Decides what the failure of one operation means: its error message, and whether its group fails too. */
#ifndef FAILURE_H
#define FAILURE_H

#include <stddef.h>
#include <tutti/backend.h>

struct tutti_work;

/* Writes the error message of a request that failed with status; request may be NULL.  The message names the operation
 * and, after a mismatch, the calls of both sides.  See engine_hooks.describe_failure. */
void failure_describe(const struct tutti_work *work, const tutti_request *request, int status, char *text, size_t size);

/* Sets that message as the thread's error.  Returns status. */
int failure_explain(const struct tutti_work *work, const tutti_request *request, int status);

/* Ends a failed operation.  A send or receive of the wrong size leaves its group usable.  Every other failure fails the
 * group.  See engine_hooks.end_failed. */
void failure_end(struct tutti_work *work, int status);

#endif
