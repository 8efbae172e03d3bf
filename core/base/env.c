#include "base/env.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <strings.h>

#include "base/error.h"

const char *env_string(const char *name, const char *fallback)
{
    const char *text = secure_getenv(name);
    return text != NULL && *text != '\0' ? text : fallback;
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

bool env_bool(const char *name, bool fallback)
{
    const char *text = env_string(name, NULL);
    if (text == NULL) return fallback;
    return strcasecmp(text, "1") == 0 || strcasecmp(text, "true") == 0 || strcasecmp(text, "yes") == 0 ||
           strcasecmp(text, "on") == 0;
}
