/* The sentence behind an error code: thread-local, set where the failure is found, read by tutti_last_error(). */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include <stdarg.h>
#include <tutti/types.h>

enum { ERROR_TEXT_MAX = 1024 };

/* Sets the calling thread's text and returns status, so that a failure reads `return error_set(TUTTI_ERR_.., "..")`. */
int error_set(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
int error_vset(int status, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* The same, followed by ": " and errno's description. */
int error_errno(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts text in front of what is set already ("context: cause") and returns status. */
int error_prefix(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The calling thread's text; "" if nothing failed.  Valid until the thread's next failing call. */
const char *error_text(void);

/* How often the calling thread has set one: whether somebody did since. */
unsigned error_count(void);

/* "TUTTI_ERR_TIMEOUT" and so on. */
const char *error_name(int status);

#endif
