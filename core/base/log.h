/* Log lines on stderr, selected by TUTTI_LOG = error | warn (default) | info | debug. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* Writes one line, with one write(2): "tutti[rank] level: ...". */
void log_write(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sets the rank that later lines carry.  Until then they carry RANK's value, which MPI launchers do not set. */
void log_set_rank(int rank);

/* Returns that rank, or -1. */
int log_rank(void);

/* True if a line of this level would be written.  Guards text that is expensive to compute. */
int log_enabled(int level);

#endif
