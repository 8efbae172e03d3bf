/* Writes the blocks of one trace file (tutti/trace.h).  The first failure is logged once, and ends the file. */
#ifndef TRACE_FILE_H
#define TRACE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <tutti/trace.h>

struct trace_file {
    int fd;             /* -1: none */
    pid_t pid;          /* of the process that made it; its forked children do not write to it */
    atomic_bool failed; /* nothing more is written */
    size_t written;
    char path[4096];
};

/* Makes the file and writes its first block, in the folder, which is made if its parent exists.  Returns false after a
 * warning. */
bool trace_file_open(struct trace_file *file, const char *folder, const tutti_trace_begin *begin, uint64_t tree);

/* Writes a block whose content has two parts.  Does nothing in a forked child. */
void trace_file_write(struct trace_file *file, enum tutti_trace_type type, const void *first, size_t first_bytes,
                      const void *second, size_t second_bytes);

/* Writes a TUTTI_TRACE_CLOCK block with the time now. */
void trace_file_write_clock(struct trace_file *file);

void trace_file_close(struct trace_file *file);

#endif
