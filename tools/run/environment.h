/* The environment of a rank: the launcher's environment and the variables of the rendezvous. */
#ifndef RUN_ENVIRONMENT_H
#define RUN_ENVIRONMENT_H

#include <stdint.h>

#include "options.h"

/* Returns the variables of the rank with this local rank, terminated by NULL.  environment_free frees them. */
char **environment_of(const struct options *options, int local_rank, uint16_t port, int token_fd, int out_fd);
void environment_free(char **environment);

#endif
