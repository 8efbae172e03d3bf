/* PowerSGD as a hook of the reducer: a gradient is sent as two narrow matrices, whose product is near it (Vogels,
 * Karimireddy and Jaggi, PowerSGD: Practical Low-Rank Gradient Compression, 2019). */
#ifndef POWERSGD_H
#define POWERSGD_H

#include <tutti/train/reducer.h>

enum { POWERSGD_PARAMETERS_MAX = 8, POWERSGD_PHASES = 2 };

/* One parameter's gradient, a matrix [rows][columns]. */
struct powersgd_matrix {
    int rows, columns;
    float *wanted; /* this rank's gradient, and what was not sent of earlier ones */
    float *q;      /* [columns][rank]: the last one, with which the next iteration starts */
};

struct powersgd {
    int rank; /* columns of the narrow matrices */
    struct powersgd_matrix matrix[POWERSGD_PARAMETERS_MAX];
    float *p[POWERSGD_PARAMETERS_MAX], *q[POWERSGD_PARAMETERS_MAX]; /* by bucket: what is sent */
    int64_t bytes;                                                  /* sent so far */
};

/* Adds the next parameter of the reducer's list. */
void powersgd_add(struct powersgd *state, int parameter, int rows, int columns);

void powersgd_free(struct powersgd *state);

/* The hook; argument is a struct powersgd. */
int powersgd_hook(tutti_bucket *bucket, int phase, void *argument, tutti_work **work);

#endif
