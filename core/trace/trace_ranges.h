/* The program's own ranges, of all threads of the process. */
#ifndef TRACE_RANGES_H
#define TRACE_RANGES_H

struct trace_file;

/* The callbacks of the tool. */
void trace_ranges_push(void *argument, const char *name);
void trace_ranges_pop(void *argument);

/* From now on ranges are written to this file; NULL: to none. */
void trace_ranges_set_file(struct trace_file *file);

/* Resets the lock in a forked child.  The parent's ranges are dropped when the child has a file of its own. */
void trace_ranges_reset(void);

/* Writes the ranges that have ended to file, if it is the one that gets them. */
void trace_ranges_flush(const struct trace_file *file);

#endif
