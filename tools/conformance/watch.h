/* What whoever watches the ranks asks of the board, and writes on it when the way through the cases ends early. */
#ifndef CONFORMANCE_WATCH_H
#define CONFORMANCE_WATCH_H

#include "conformance/board.h"
#include "conformance/cases.h"

/* How long a case may go on; and how long none has begun. */
int64_t watch_limit_ns(const struct options *options);
int64_t watch_quiet_ns(struct board *board);

/* Prints the kinds of cases that are over, `at` being the case under way; *told is how many were told of. */
void watch_tell(const struct board *board, const struct cases *cases, int *told, int at);

/* board->end for a case that does not end. */
void watch_say_hung(struct board *board, int at);

/* The case at which a launch ended counts as failed, on the ranks that had no result yet, or all; board->end says why.
 */
void watch_blame(struct board *board, int at);

#endif
