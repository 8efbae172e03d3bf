/* Helpers of a watcher of the ranks: it reads the scoreboard, and writes on it when the run ends early. */
#ifndef CONFORMANCE_WATCH_H
#define CONFORMANCE_WATCH_H

#include "conformance/cases.h"
#include "conformance/scoreboard.h"

/* watch_limit_ns returns how long a case may take.  watch_quiet_ns returns the time since the last case began. */
int64_t watch_limit_ns(const struct options *options);
int64_t watch_quiet_ns(struct scoreboard *scoreboard);

/* Says how far the run is, where that is wanted.  `at` is the current case. */
void watch_print_progress(const struct options *options, const struct scoreboard *scoreboard, const struct cases *cases,
                          int at);
void watch_clear_progress(void);

/* Sets scoreboard->end for case `at`, which does not end. */
void watch_say_hung(struct scoreboard *scoreboard, int at);

/* Records the case at which a launch ended as failed on the ranks without a result, or on all. scoreboard->end has the
 * reason. */
void watch_blame(struct scoreboard *scoreboard, int at);

#endif
