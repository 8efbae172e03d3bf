/* The tcp backend, except that the rank DIES_RANK (of the launcher's RANK) is killed where it would measure the
 * network with another one.  DIES_TCP is the path of the plug-in. */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/backend.h>

static tutti_backend table;
static int (*measure)(void *group, tutti_links *links);

static int links(void *group, tutti_links *links)
{
    const char *rank = getenv("RANK"), *dies = getenv("DIES_RANK");
    if (rank != NULL && dies != NULL && strcmp(rank, dies) == 0) raise(SIGKILL);
    return measure(group, links);
}

static const tutti_backend *find_tcp(const tutti_host *host)
{
    const char *path = getenv("DIES_TCP");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const tutti_backend *tcp = library != NULL ? dlsym(library, TUTTI_BACKEND_SYMBOL) : NULL;
    if (tcp == NULL) {
        host->error(TUTTI_ERR_BACKEND, "DIES_TCP is not the path of the tcp plug-in: %s", dlerror());
        return NULL;
    }
    memcpy(&table, tcp, sizeof table);
    table.name = "dies_measuring";
    measure = table.links;
    table.links = links;
    return &table;
}

TUTTI_BACKEND_EXPORT const tutti_backend tutti_backend_v1 = {TUTTI_BACKEND_HEADER, .name = "dies_measuring",
                                                             .instead = find_tcp};
