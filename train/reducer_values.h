/* The values of the parameters. */
#ifndef TRAIN_REDUCER_VALUES_H
#define TRAIN_REDUCER_VALUES_H

#include "reducer_state.h"

/* Replaces all ranks' values by those of one rank. */
int values_broadcast(struct tutti_reducer *reducer, int root);

#endif
