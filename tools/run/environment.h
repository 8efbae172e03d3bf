/* The environment of a rank: the launcher's environment and the variables of the rendezvous. */
#ifndef RUN_ENVIRONMENT_H
#define RUN_ENVIRONMENT_H

#include "options.h"
#include "rank.h"
#include "round.h"

/* Returns the variables of a rank, terminated by NULL.  environment_free frees them. */
char **environment_of(const struct options *options, const struct round *round, const struct rank *rank, int token_fd,
                      int out_fd);
void environment_free(char **environment);

#endif
