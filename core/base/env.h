/* Environment variables, read with environment_get: a set-uid program ignores all of Tutti's variables. */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the variable's text, or fallback if it is unset or empty. */
const char *env_string(const char *name, const char *fallback);

/* True if the variable is set but env_string ignores it, because the program has more privileges than its caller. */
bool env_is_hidden(const char *name);

/* Parses the variable as a decimal integer in [low, high].  *value is fallback if it is unset or empty.  Returns
 * INVALID_ARGUMENT for any other text, with a message that has the variable's name and text. */
int env_int(const char *name, int64_t fallback, int64_t low, int64_t high, int64_t *value);

/* Parses other text in the same way; `what` names it in the error message. */
int env_parse_int(const char *what, const char *text, int64_t low, int64_t high, int64_t *value);

/* Parses 1, true, yes, on and 0, false, no, off.  Returns fallback if the variable is unset, and, after one warning, if
 * it is anything else. */
bool env_bool(const char *name, bool fallback);

#endif
