/* Texts about tutti-run's options: the table for the help, and torchrun's options that tutti-run lacks. */
#ifndef RUN_OPTIONS_TEXT_H
#define RUN_OPTIONS_TEXT_H

#include "common/cli.h"

enum options_id {
    OPTION_NPROC,
    OPTION_NNODES,
    OPTION_NODE_RANK,
    OPTION_MASTER_ADDR,
    OPTION_MASTER_PORT,
    OPTION_HOSTS,
    OPTION_HOSTFILE,
    OPTION_SSH_COMMAND,
    OPTION_SSH_TIMEOUT,
    OPTION_EXPORT,
    OPTION_ENV_FILE,
    OPTION_TOKEN_FILE,
    OPTION_LOG_DIR,
    OPTION_NO_PREFIX,
    OPTION_GRACE,
    OPTION_TIMEOUT,
    OPTION_RDZV_ENDPOINT,
    OPTION_RDZV_ID,
    OPTION_RDZV_CONF,
    OPTION_ON_FAILURE,
    OPTION_MAX_RESTARTS,
    OPTION_REPLACE,
    OPTION_BACKOFF,
    OPTION_MPI,
    OPTION_MPI_RANK,
    OPTION_NODE,
    OPTION_BIND,
    OPTION_STANDALONE,
    OPTIONS
};

/* In the order of the enumeration. */
extern const struct cli_option options_table[];

/* Returns why tutti-run lacks an option of torchrun, or NULL if torchrun has no such option. */
const char *options_why_not(const char *argument);

#endif
