/* A valid plug-in that supports CUDA tensors only.  Its table is shorter than the core's, as in an older plug-in. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    .abi = TUTTI_BACKEND_ABI,
    .size = offsetof(tutti_backend, arm),
    .name = "cuda_only",
    .group_bytes = 64,
    .devices = 1u << TUTTI_CUDA,
    BROKEN_ENTRIES,
};
