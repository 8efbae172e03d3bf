/* A plug-in built with an older backend.h: its table ends earlier, and the memory after it is not readable. */
#include <sys/mman.h>
#include <unistd.h>

#include "broken.h"

enum { KNOWN = offsetof(tutti_backend, latency_ns) };

static const tutti_backend whole = {
    .abi = TUTTI_BACKEND_ABI,
    .size = KNOWN,
    .name = "older",
    .group_bytes = 64,
    .devices = 1u << TUTTI_CPU,
    BROKEN_ENTRIES,
};

static const tutti_backend *give(const tutti_host *host)
{
    static char *end; /* end of the readable memory */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (end == NULL) {
        char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED || mprotect(pages + page, page, PROT_NONE) != 0) {
            host->error(TUTTI_ERR_NO_MEMORY, "cannot map two pages");
            return NULL;
        }
        end = pages + page;
        memcpy(end - KNOWN, &whole, KNOWN);
    }
    return (const tutti_backend *)(void *)(end - KNOWN);
}

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {TUTTI_BACKEND_HEADER, .name = "older", .instead = give};
