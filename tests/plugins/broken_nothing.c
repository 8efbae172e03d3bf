/* A plug-in without any operation. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER, .name = "broken_nothing", .group_bytes = 64,           .devices = 1u << TUTTI_CPU,
    .open = broken_open,  .close = broken_close,    .progress = broken_progress,
};
