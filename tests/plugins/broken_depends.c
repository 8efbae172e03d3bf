/* A plug-in that needs an undefined symbol, as after an incompatible upgrade of a library. */
#include "broken.h"

int library_that_was_upgraded(void *group, tutti_request *request);

static int calls_it(void *group, tutti_request *request)
{
    return library_that_was_upgraded(group, request);
}

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,       .name = "broken_depends", .group_bytes = 64,
    .devices = 1u << TUTTI_CPU, .open = broken_open,      .close = broken_close,
    .send = calls_it,           .recv = calls_it,         .progress = broken_progress,
};
