/* A plug-in that cannot work on this host. */
#include "broken.h"

static int probe(const tutti_host *host)
{
    return host->error(TUTTI_ERR_BACKEND, "broken_probe: the driver is older than this plug-in");
}

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,       .name = "broken_probe", .group_bytes = 64,
    .devices = 1u << TUTTI_CPU, .probe = probe,         BROKEN_ENTRIES,
};
