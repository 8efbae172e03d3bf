/* Reads files of the flight recorder: docs/flight-recorder.md describes their lines.
 *
 * A file is read up to its last whole line.  Lines and keys that are not known are skipped, so that later versions can
 * add some.  Nothing in a file is trusted. */
#ifndef TRACE_RECORD_H
#define TRACE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An operation: of the ring (`op`), or under way when the file was written (`wait`). */
struct record_op {
    bool waits;
    uint64_t seq, fingerprint; /* 0 for messages */
    int64_t issued;            /* ns; 0: not known */
    int64_t bytes;
    int root, tag, mark;
    const char *state, *kind, *call, *status, *peers; /* "" if not there */
};

struct record_group {
    uint64_t id, seq;
    int rank, size;                           /* rank: global rank of the process in it */
    bool busy;                                /* written without its lock: has no `wait` lines */
    const char *name, *ranks, *status, *text; /* "" if not there */
    size_t first, n;                          /* its operations */
};

struct record_mark {
    int number;
    const char *text;
};

struct record_file {
    char *path; /* set by the caller; freed here */
    char *data; /* the file's bytes, to which the texts point */
    uint64_t job;
    int rank, pid;
    int64_t ns, wall_ns; /* when it was written: CLOCK_MONOTONIC, and the time of day */
    const char *host, *version, *why;
    bool is_whole;
    size_t n_groups, n_ops, n_marks;
    struct record_group *groups;
    struct record_op *ops;
    struct record_mark *marks;
};

/* Parses the bytes, which must be allocated with one more; the file owns them from now on, even after an error.
 * Returns NULL, or what is wrong with the file as a whole. */
const char *record_parse(char *data, size_t bytes, struct record_file *file);

void record_close(struct record_file *file);

/* Returns the text of a mark, or NULL if it is not kept. */
const char *record_mark_text(const struct record_file *file, int number);

/* Parses ranks such as "0-3,7".  Returns their number, at most `most`. */
int record_ranks(const char *text, int *ranks, int most);

#endif
