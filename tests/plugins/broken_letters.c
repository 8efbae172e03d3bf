/* A plug-in with invalid characters in its name. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER, .name = "Broken Letters", .group_bytes = 64, .devices = 1u << TUTTI_CPU, BROKEN_ENTRIES,
};
