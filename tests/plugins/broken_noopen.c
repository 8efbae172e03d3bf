/* A plug-in without open. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,  .name = "broken_noopen", .group_bytes = 64,      .devices = 1u << TUTTI_CPU,
    .close = broken_close, .send = broken_message,  .recv = broken_message, .progress = broken_progress,
};
