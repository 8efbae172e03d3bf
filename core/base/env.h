/* The environment, read with secure_getenv: a set-uid program ignores all of ours. */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stdbool.h>
#include <stdint.h>

/* The variable's text, or fallback where it is unset or empty. */
const char *env_string(const char *name, const char *fallback);

/* Whether it is set, and env_string does not see it: the program has more rights than who started it. */
bool env_is_hidden(const char *name);

/* The whole variable as a decimal integer in [low, high].  Unset or empty: fallback.  Else INVALID_ARGUMENT, whose
 * sentence names the variable and what it held. */
int env_int(const char *name, int64_t fallback, int64_t low, int64_t high, int64_t *value);

/* The same for text that came from elsewhere; what names it in the sentence. */
int env_parse_int(const char *what, const char *text, int64_t low, int64_t high, int64_t *value);

/* 1, true, yes, on and 0, false, no, off; unset: fallback, and the same, after a warning once, for anything else. */
bool env_bool(const char *name, bool fallback);

#endif
