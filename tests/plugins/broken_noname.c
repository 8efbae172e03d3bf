/* A plug-in without a name. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,
    .group_bytes = 64,
    BROKEN_ENTRIES,
};
