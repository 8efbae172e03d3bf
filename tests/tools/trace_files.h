/* Writes trace files (tutti/trace.h) of an invented job, and runs tutti-trace. */
#ifndef TESTS_TRACE_FILES_H
#define TESTS_TRACE_FILES_H

#include <stddef.h>
#include <tutti/trace.h>

/* A job in which every collective begins at a multiple of STEP_NS.  Rank r calls r us later, but `late` does so
 * LATE_NS later.  All end at END_NS. */
enum { TRACE_STEP_NS = 1000000, TRACE_LATE_NS = 500000, TRACE_END_NS = 600000 };

struct trace_job {
    const char *folder;
    int ranks, steps, late; /* late: a rank, or -1 */
    int64_t skew_ns;        /* the clock of odd ranks, on another host, is this much ahead */
    int64_t error_ns;       /* of the alignment of odd ranks; -1: unknown */
};

/* Makes a folder.  The caller removes it with trace_remove. */
void trace_make_folder(char path[64]);
void trace_remove(const char *folder);

void trace_write_job(const struct trace_job *job);

/* Returns the path of a rank's file in a static buffer. */
const char *trace_path(const char *folder, int rank);

/* Runs tutti-trace with the arguments.  Copies its output, with its errors, to text.  Returns the exit status. */
int trace_run(const char *arguments, char *text, size_t size);

#endif
