/* A plug-in without progress. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER, .name = "broken_noprogress", .group_bytes = 64,      .devices = 1u << TUTTI_CPU,
    .open = broken_open,  .close = broken_close,       .send = broken_message, .recv = broken_message,
};
