/* A model of a few parameters, on which the reducer's tests run. */
#ifndef TESTS_REDUCER_MODEL_H
#define TESTS_REDUCER_MODEL_H

#include <tutti/train/reducer.h>

#include "ranks.h"

enum { LAYERS = 6, NUMEL_MOST = 700 };

/* A model of parameters with different sizes; gradient i of rank r in iteration k has elements 100 k + 10 i + r + j. */
struct model {
    tutti_parameter list[LAYERS];
    char name[LAYERS][16];
    float value[LAYERS][NUMEL_MOST], gradient[LAYERS][NUMEL_MOST];
};

extern const int model_numel[LAYERS];

/* Returns a model whose values depend on the rank.  The caller frees it. */
struct model *model_make(int rank);

/* Returns an element of a gradient in an iteration. */
float model_element(int iteration, int i, int rank, int j);

void model_set_gradient(tutti_reducer *reducer, int iteration, int i, int rank);

/* True if a gradient is the sum over the first `active` ranks, divided. */
bool model_is_average(tutti_reducer *reducer, int iteration, int i, int active, double divisor);

/* Runs an iteration that reports in an order that depends on the rank, and checks the results. */
int model_iterate(tutti_group *group, tutti_reducer *reducer, int iteration, int rank, int size, double divisor);

/* Makes a model and its reducer, with small buckets unless opts has sizes. */
int model_make_reducer(tutti_group *group, int rank, tutti_reducer_opts opts, struct model **model,
                       tutti_reducer **reducer);

/* Sets and reports all gradients but one, in an order that depends on the rank. */
int model_report_all_but(tutti_group *group, tutti_reducer *reducer, int iteration, int missing);

/* True if the last error message has the word.  Prints the message otherwise. */
bool error_has(const char *word);

#define RUN(call)                                                                                                      \
    do {                                                                                                               \
        int line_of_failure = (call);                                                                                  \
        if (line_of_failure != 0) return line_of_failure;                                                              \
    } while (0)

#endif
