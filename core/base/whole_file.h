/* Writes whole files in bounded time, because a file system may hang. */
#ifndef BASE_WHOLE_FILE_H
#define BASE_WHOLE_FILE_H

#include <stddef.h>

enum { WHOLE_FILE_MS = 2000 };

/* Writes data, which it frees, to folder/name: to a temporary file, which then replaces the old one.  Makes the folder
 * if only that is missing.  Returns 0 or an errno value.  After WHOLE_FILE_MS that is ETIMEDOUT, and a thread goes on
 * writing. */
int whole_file_write(const char *folder, const char *name, char *data, size_t bytes);

#endif
