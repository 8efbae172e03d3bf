/* Memory for the launcher, which ends with a message if there is none; its ranks end with it. */
#ifndef RUN_MEMORY_H
#define RUN_MEMORY_H

#include <stddef.h>

void *memory_resize(void *memory, size_t bytes);
char *memory_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
