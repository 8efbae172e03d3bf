#include "base/log_levels.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *const log_level_names[LOG_DEBUG + 1] = {"error", "warn", "info", "debug"};
#define SUBSYSTEM_NAME(NAME, name) #name,
const char *const log_subsystem_names[LOG_SUBSYSTEMS] = {LOG_SUBSYSTEM_ROWS(SUBSYSTEM_NAME)};

static bool equals(const char *name, const char *text, size_t n)
{
    return strlen(name) == n && strncasecmp(name, text, n) == 0;
}

/* Returns the index of a name of n bytes, or -1. */
static int find_name(const char *const *names, int n_names, const char *text, size_t n)
{
    for (int i = 0; i < n_names; i++)
        if (equals(names[i], text, n)) return i;
    return -1;
}

enum log_subsystem log_subsystem_find(const char *name)
{
    int found = find_name(log_subsystem_names, LOG_SUBSYSTEMS, name, strlen(name));
    return found < 0 ? LOG_PLUGIN : (enum log_subsystem)found;
}

/* Parses "info" or "store:debug", n bytes long. */
static bool parse_item(const char *item, size_t n, signed char levels[LOG_SUBSYSTEMS])
{
    const char *colon = memchr(item, ':', n);
    const char *word = colon != NULL ? colon + 1 : item;
    size_t bytes = n - (size_t)(word - item);
    int level = find_name(log_level_names, LOG_DEBUG + 1, word, bytes);
    if (level < 0 && !equals("off", word, bytes)) return false;
    int only = colon == NULL ? -1 : find_name(log_subsystem_names, LOG_SUBSYSTEMS, item, (size_t)(colon - item));
    if (colon != NULL && only < 0) return false;
    for (int i = 0; i < LOG_SUBSYSTEMS; i++)
        if (only < 0 || only == i) levels[i] = (signed char)level; /* -1 is LOG_OFF */
    return true;
}

static void describe_wrong(const char *item, size_t n, char *wrong, size_t capacity)
{
    int used = snprintf(wrong, capacity,
                        "TUTTI_LOG: \"%.*s\" is neither a level (off, error, warn, info, debug) nor SUBSYSTEM:LEVEL, "
                        "and is ignored; the subsystems are",
                        (int)(n < 40 ? n : 40), item);
    for (int i = 0; i < LOG_SUBSYSTEMS && used > 0 && (size_t)used < capacity; i++)
        used += snprintf(wrong + used, capacity - (size_t)used, "%s%s", i > 0 ? ", " : " ", log_subsystem_names[i]);
}

bool log_levels_parse(const char *text, signed char levels[LOG_SUBSYSTEMS], char *wrong, size_t capacity)
{
    bool right = true;
    for (int i = 0; i < LOG_SUBSYSTEMS; i++) levels[i] = LOG_WARN;
    while (*text != '\0') {
        size_t n = strcspn(text, ",");
        if (!parse_item(text, n, levels) && right) {
            describe_wrong(text, n, wrong, capacity);
            right = false;
        }
        text += n + (text[n] == ',');
    }
    return right;
}
