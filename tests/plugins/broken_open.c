/* A plug-in whose groups do not open.  It counts calls of close for the test, because every failed open must be closed.
 *   BROKEN_OPEN_LATE=1    rank 0 times out; the others open after it has failed
 */
#include <stdlib.h>
#include <time.h>

#include "broken.h"

TUTTI_BACKEND_EXPORT int broken_open_closes;

static int fail(void *group, const tutti_group_info *info, const tutti_host *host)
{
    (void)group;
    bool late = getenv("BROKEN_OPEN_LATE") != NULL;
    if (late && info->rank > 0) {
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
        return TUTTI_OK;
    }
    return host->error(late ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_SYSTEM, "broken_open: no device for rank %d of %d",
                       info->rank, info->world_size);
}

static void count(void *group)
{
    (void)group;
    broken_open_closes++;
}

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER, .name = "broken_open",  .group_bytes = 64,      .devices = 1u << TUTTI_CPU,  .open = fail,
    .close = count,       .send = broken_message, .recv = broken_message, .progress = broken_progress,
};
