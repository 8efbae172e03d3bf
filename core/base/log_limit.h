/* Limits how often one place of the code writes: at most so many lines a period.  Later ones are counted, and a line
 * says so when the period has ended.  Thread-safe. */
#ifndef BASE_LOG_LIMIT_H
#define BASE_LOG_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

enum { LOG_LIMIT_LINES = 30, LOG_LIMIT_MS = 10000, LOG_LIMIT_TEXT = 72 };

/* The lines of one place that were left out. */
struct log_left_out {
    unsigned n;
    int level;
    char subsystem[24];
    char text[LOG_LIMIT_TEXT]; /* the beginning of the first one */
};

/* True if the place may write this line.  most is the number of lines a period; 0: unlimited. */
bool log_limit_allow(const void *place, unsigned most, int level, const char *subsystem, const char *text,
                     int64_t now_ns);

/* Takes the lines that a place has left out, if its period has ended by now.  Returns false if there are none. */
bool log_limit_take(int64_t now_ns, struct log_left_out *left_out);

#endif
