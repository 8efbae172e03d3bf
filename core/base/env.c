#include "base/env.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/backend.h>

#include "base/error.h"
#include "base/log.h"
#include "portable/environment.h"

const char *env_string(const char *name, const char *fallback)
{
    const char *text = environment_get(name);
    return text != NULL && *text != '\0' ? text : fallback;
}

bool env_is_hidden(const char *name)
{
    return getenv(name) != NULL && environment_get(name) == NULL;
}

int env_parse_int(const char *what, const char *text, int64_t low, int64_t high, int64_t *value)
{
    char *end = NULL;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || parsed < low || parsed > high)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                         "%s is \"%.80s\"; it must be an integer from %" PRId64 " to %" PRId64, what, text, low, high);
    *value = parsed;
    return TUTTI_OK;
}

int env_int(const char *name, int64_t fallback, int64_t low, int64_t high, int64_t *value)
{
    const char *text = env_string(name, NULL);
    *value = fallback;
    return text == NULL ? TUTTI_OK : env_parse_int(name, text, low, high, value);
}

/* True if no warning about this variable has been logged yet. */
static bool is_first_time(const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const char *warned[8]; /* the pointers stay valid, because names are literals */
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < 8 && warned[i] != NULL && strcmp(warned[i], name) != 0) i++;
    bool first = i < 8 && warned[i] == NULL;
    if (first) warned[i] = name;
    pthread_mutex_unlock(&lock);
    return first;
}

bool env_bool(const char *name, bool fallback)
{
    const char *text = env_string(name, NULL);
    int value = text != NULL ? tutti_parse_bool(text) : fallback;
    if (value < 0 && is_first_time(name))
        log_write(LOG_WARN, LOG_INIT, "%s=%.40s is not a boolean (use 0, false, no, off, 1, true, yes or on); using %d",
                  name, text, fallback);
    return value < 0 ? fallback : value != 0;
}
