/* The flight recorder's files in a folder. */
#ifndef TRACE_FOLDER_H
#define TRACE_FOLDER_H

#include "trace/record.h"

struct folder {
    struct record_file *files; /* of one job: the one whose file is the latest */
    size_t n;
};

/* Reads the files NAME.record of a folder.  Prints a line for each that cannot be used or belongs to another job.
 * Returns false, after a message, if none is left. */
bool folder_read(const char *path, struct folder *folder);

void folder_close(struct folder *folder);

#endif
