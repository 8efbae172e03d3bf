/* Lines on stderr, chosen by TUTTI_LOG = error | warn (default) | info | debug. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

/* One line, written with one write(2): "tutti[rank] level: ...". */
void log_write(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The rank that lines are under from here on; until then it is RANK's, which launchers of MPI do not set. */
void log_set_rank(int rank);

/* Whether a line of this level would be written: guards what is dear to compute. */
int log_enabled(int level);

#endif
