/* Allocates memory for the launcher.  If there is none, prints a message and exits, which ends the ranks too. */
#ifndef RUN_MEMORY_H
#define RUN_MEMORY_H

#include <stddef.h>

void *memory_resize(void *memory, size_t bytes);
char *memory_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
