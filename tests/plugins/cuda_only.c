/* Valid, but supports CUDA tensors only, with a shorter table than the core's, like an older plug-in. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    .abi = TUTTI_BACKEND_ABI,
    .size = offsetof(tutti_backend, arm),
    .name = "cuda_only",
    .group_bytes = 64,
    .devices = 1u << TUTTI_CUDA,
    .open = broken_open,
    .close = broken_close,
    .send = broken_message,
    .recv = broken_message,
    .progress = broken_progress,
};
