/* A plug-in with another name than its file. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER, .name = "somebody_else", .group_bytes = 64, .devices = 1u << TUTTI_CPU, BROKEN_ENTRIES,
};
