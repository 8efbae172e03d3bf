/* A plug-in whose table ends before the first entry. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    .abi = TUTTI_BACKEND_ABI,
    .size = offsetof(tutti_backend, open),
    .name = "broken_size",
    .group_bytes = 64,
    .devices = 1u << TUTTI_CPU,
    BROKEN_ENTRIES,
};
