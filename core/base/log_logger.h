/* The program's own logger: see tutti_set_logger.  Thread-safe. */
#ifndef BASE_LOG_LOGGER_H
#define BASE_LOG_LOGGER_H

#include <stdbool.h>
#include <tutti/tutti.h>

/* Replaces the logger (NULL: none), and waits until the old one is running in no thread.  Returns false, and does
 * nothing, if the calling thread is inside the logger. */
bool log_logger_set(tutti_logger function, void *argument);

/* Calls the logger.  Returns false if there is none, or if the calling thread is inside it. */
bool log_logger_call(const tutti_log_line *line);

#endif
