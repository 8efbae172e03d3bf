/* Log lines: chosen by TUTTI_LOG, written to stderr, to TUTTI_LOG_FILE or by the program's own logger. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/log_levels.h"

/* The highest level that each subsystem writes. */
extern _Atomic signed char log_levels[LOG_SUBSYSTEMS];

/* Reads TUTTI_LOG on the first call.  Returns the subsystem's level. */
int log_read_level(enum log_subsystem subsystem);

/* True if a line of this level would be written.  Guards text that is expensive to compute. */
static inline bool log_enabled(int level, enum log_subsystem subsystem)
{
    /* relaxed: a level is one number, and no other data depends on it */
    int most = atomic_load_explicit(&log_levels[subsystem], memory_order_relaxed);
    if (__builtin_expect(level > most, 1)) return false;
    return most != LOG_UNREAD || level <= log_read_level(subsystem);
}

/* Writes one line.  Computes no argument if the line is not wanted. */
#define log_write(level, subsystem, ...)                                                                               \
    (log_enabled(level, subsystem) ? log_print(level, subsystem, __VA_ARGS__) : (void)0)

/* Writes one line whatever its level.  Lines with the same format pointer come from one place: a place that repeats
 * itself is limited (log_limit.h).  Keeps errno. */
void log_print(int level, enum log_subsystem subsystem, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Writes one line if TUTTI_LOG wants it, as a subsystem of any name.  Ignores levels that do not exist. */
void log_vas(const char *subsystem, int level, const char *format, va_list args);

/* Sets the rank that later lines carry.  Until then they carry RANK's value, which MPI launchers do not set. */
void log_set_rank(int rank);

/* Returns that rank, or -1. */
int log_rank(void);

#endif
