/* Results of one backend or one file, to draw and to compare. */
#ifndef BENCH_SERIES_H
#define BENCH_SERIES_H

#include "common/doc.h"

#include <stdbool.h>
#include <stdint.h>

enum { SERIES_MAX = 16, SERIES_TEXT_MAX = 96 };

struct point {
    char op[32];
    int64_t bytes;
    double us, p95; /* median and 95th percentile */
    double busbw;   /* in GB/s, from the mean */
};

struct series {
    char label[SERIES_TEXT_MAX];
    char backend[32]; /* if it was read */
    struct point *points;
    int n;
};

/* What is drawn in one picture. */
struct series_set {
    struct series list[SERIES_MAX];
    int n;
    char title[2 * SERIES_TEXT_MAX];
};

/* Returns the series with this label, which it adds unless there is one.  NULL if there are too many. */
struct series *series_find(struct series_set *set, const char *label);

/* Appends a copy of the point.  Returns false without memory. */
bool series_add(struct series *series, const struct point *point);

/* Returns the point of an operation and a size, or NULL. */
const struct point *series_at(const struct series *series, const char *op, int64_t bytes);

/* Adds the results of a document that --json has written.  Each backend is a series, whose label begins with `name`.
 * Returns NULL, or what is wrong with the document. */
const char *series_read(struct series_set *set, const doc *document, const char *name);

void series_free(struct series_set *set);

#endif
