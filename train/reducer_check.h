/* Checks a program's list of parameters and options before anything is sent. */
#ifndef TRAIN_REDUCER_CHECK_H
#define TRAIN_REDUCER_CHECK_H

#include "reducer_state.h"

/* Completes the options' defaults and checks that they go together.  Returns a status, with the error message set. */
int reducer_check_options(tutti_reducer_opts *opts);

/* Checks a list of n parameters of parameter_bytes each, and copies it. */
int reducer_copy_list(struct tutti_reducer *reducer, const void *list, size_t parameter_bytes, int n);

#endif
