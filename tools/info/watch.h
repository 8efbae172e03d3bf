/* tutti-info --watch: shows the counters of a running job's ranks. */
#ifndef INFO_WATCH_H
#define INFO_WATCH_H

/* Prints the counters of the processes that descend from process `job` once per interval, until all of them have ended.
 * count: the number of times, or 0.  Returns the exit status: 1 if there is no such job. */
int watch_job(const char *job, int interval_ms, int count);

#endif
