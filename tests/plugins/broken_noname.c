/* Has no name. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,   .group_bytes = 64,      .open = broken_open,         .close = broken_close,
    .send = broken_message, .recv = broken_message, .progress = broken_progress,
};
