#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug"};

/* Returns the variable's text, or fallback.  env_string cannot be used here, because env.c logs. */
static const char *read_env(const char *name, const char *fallback)
{
    const char *text = secure_getenv(name);
    return text != NULL && *text != '\0' ? text : fallback;
}

static int read_level(void)
{
    static atomic_int cached = -1;
    /* relaxed: every thread computes the same value */
    int level = atomic_load_explicit(&cached, memory_order_relaxed);
    if (level >= 0) return level;
    const char *text = read_env("TUTTI_LOG", "warn");
    for (int i = 0; i <= LOG_DEBUG; i++)
        if (strcasecmp(text, level_names[i]) == 0) level = i;
    int before = atomic_exchange_explicit(&cached, level >= 0 ? level : LOG_WARN, memory_order_relaxed);
    if (level < 0 && before < 0)
        log_write(LOG_WARN, "TUTTI_LOG=%.40s is not a level (use error, warn, info or debug); using warn", text);
    return level >= 0 ? level : LOG_WARN;
}

int log_enabled(int level)
{
    return level <= read_level();
}

static atomic_int known_rank = -1;

void log_set_rank(int rank)
{
    atomic_store_explicit(&known_rank, rank, memory_order_relaxed); /* relaxed: no other data depends on it */
}

int log_rank(void)
{
    return atomic_load_explicit(&known_rank, memory_order_relaxed);
}

/* Writes "tutti[2] warn: ", with a dash if the rank is unknown. */
static int write_prefix(char *line, size_t size, int level)
{
    int rank = atomic_load_explicit(&known_rank, memory_order_relaxed);
    if (rank >= 0) return snprintf(line, size, "tutti[%d] %s: ", rank, level_names[level]);
    return snprintf(line, size, "tutti[%.12s] %s: ", read_env("RANK", "-"), level_names[level]);
}

void log_write(int level, const char *format, ...)
{
    if (!log_enabled(level)) return;
    char line[1200];
    int used = write_prefix(line, sizeof line, level);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    if (n < 0) return;
    size_t length = strnlen(line, sizeof line - 1);
    line[length++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written; /* there is nowhere to report a failure */
}
