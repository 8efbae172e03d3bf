/* A plug-in without a table of this major version. */
#include "broken.h"

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v99 = {TUTTI_BACKEND_HEADER, .name = "broken_symbol"};
