/* Where a tool writes: data, colours and progress. */
#ifndef COMMON_OUTPUT_H
#define COMMON_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Returns the stream for data such as CSV and JSON.  Under tutti-run, which may prefix each line with a rank, that is
 * TUTTI_STDOUT_FD, the launcher's own stdout. */
FILE *output_data(void);

enum output_colour { OUTPUT_RED, OUTPUT_GREEN, OUTPUT_YELLOW };

/* Return the text that begins and ends a colour on the stream.  Empty if it is not a terminal, NO_COLOR is set or TERM
 * is "dumb". */
const char *output_begin(FILE *stream, enum output_colour colour);
const char *output_end(FILE *stream);

/* A line on stderr that says how far a long run is and how long it will still take. */
struct progress {
    bool wanted, terminal, shown;
    int64_t start_ns, last_ns;
    int done, total;
};

/* Starts a run of `total` steps.  Progress is shown if stderr is a terminal, or if it is asked for. */
void progress_begin(struct progress *progress, int total, bool asked);

/* Says that the next step begins, and what it is.  Prints at most one line a second, on a terminal ten. */
void progress_step(struct progress *progress, const char *what);

/* Says that `done` steps are over, and what the next one is. */
void progress_at(struct progress *progress, int done, const char *what);

/* Removes the line from the terminal, before other output and at the end. */
void progress_clear(struct progress *progress);

#endif
