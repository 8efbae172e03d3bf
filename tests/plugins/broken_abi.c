/* A plug-in with another ABI version. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    .abi = TUTTI_BACKEND_ABI + 6,
    .size = sizeof(tutti_backend),
    .name = "broken_abi",
    .group_bytes = 64,
    .devices = 1u << TUTTI_CPU,
    BROKEN_ENTRIES,
};
