/* The file that TUTTI_LOG_FILE names: opened at the first line, and again in a forked child or once the rank is known,
 * if the name depends on them.  Thread-safe. */
#ifndef BASE_LOG_FILE_H
#define BASE_LOG_FILE_H

#include <stdbool.h>
#include <stddef.h>

enum { LOG_FILE_WARNING = 400 };

/* Expands %h (host), %p (process id), %r (rank), %% in pattern.  Returns false for any other % and for a name that does
 * not fit. */
bool log_file_name(const char *pattern, const char *host, int pid, const char *rank, char *name, size_t capacity);

/* Appends a line with one write to the file of this pattern.  Returns false if the file does not take it: write it to
 * stderr.  The first time `warning` receives the reason, and it is "" otherwise. */
bool log_file_write(const char *pattern, const char *host, const char *rank, const char *line, size_t bytes,
                    char warning[LOG_FILE_WARNING]);

#endif
