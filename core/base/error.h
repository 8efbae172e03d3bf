/* Error messages: thread-local text that is set where a failure is detected, and read by tutti_last_error(). */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdarg.h>
#include <tutti/types.h>

enum { ERROR_TEXT_MAX = 1024 };

/* Sets the calling thread's message and returns status, so that a failure reads `return error_set(TUTTI_ERR_..,
 * "..")`. */
int error_set(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int error_vset(int status, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* Does error_set, and appends ": " and errno's description.  Keeps errno. */
int error_errno(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts text in front of the current message ("context: cause") and returns status. */
int error_prefix(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends the descriptor limit to a text that quotes EMFILE, as error_set does.  For a text that other ranks may get,
 * whose limits differ. */
void error_append_limit(char *text, size_t capacity);

/* Returns the calling thread's message; "" if nothing failed.  Valid until the thread's next failing call. */
const char *error_text(void);

/* Returns how many messages the calling thread has set.  A change means that a callee has set one. */
unsigned error_count(void);

/* Returns the name of a status, such as "TUTTI_ERR_TIMEOUT". */
const char *error_name(int status);

#endif
