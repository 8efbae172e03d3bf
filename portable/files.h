/* Files without a name. */
#ifndef PORTABLE_FILES_H
#define PORTABLE_FILES_H

#include <stdbool.h>

/* Returns an empty file that only this process and its children can open, or -1 with errno.  The name is for people. */
int files_unnamed(const char *name);
/* Fixes content and size of such a file, if the system can.  Returns false with errno. */
bool files_seal(int fd);
/* Returns an unnamed file that a reader may find by its name through the process, or -1 if the system has none. */
int files_published(const char *name);

#endif
