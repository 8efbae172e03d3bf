/* The tcp backend with a fault: one rank's N-th message with data goes wrong.  Shows that a suite notices it.
 *
 *   TUTTI_SPOIL=WHAT@RANK:N
 *      flip: one bit of it differs
 *      lose: it is not sent, and reported as sent
 *      die:  the process is killed
 *      hang: its call never returns
 *   TUTTI_SPOIL_PATH   libtutti_tcp.so
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/backend.h>
#include <unistd.h>

static const tutti_backend *tcp;
static char what[8];
static int rank = -1, n;
static bool is_rank;
static atomic_int count;

/* Opens a group.  The root group is the world. */
static int spoil_open(void *group, const tutti_group_info *info, const tutti_host *host)
{
    if (tcp == NULL) return host->error(TUTTI_ERR_BACKEND, "spoil: TUTTI_SPOIL_PATH does not name a tcp backend");
    if (info->parent == NULL) is_rank = info->rank == rank;
    return tcp->open(group, info, host);
}

static void spoil_close(void *group)
{
    if (tcp != NULL) tcp->close(group);
}

static int spoil_send(void *group, tutti_request *request)
{
    if (!is_rank || request->bytes == 0 || atomic_fetch_add(&count, 1) != n) return tcp->send(group, request);
    if (strcmp(what, "lose") == 0) return TUTTI_REQUEST_DONE;
    if (strcmp(what, "die") == 0) raise(SIGKILL);
    while (strcmp(what, "hang") == 0) pause();
    uint8_t *copy = malloc(request->bytes); /* never freed, because it is unknown how long it is read */
    memcpy(copy, request->data, request->bytes);
    copy[request->bytes / 2] ^= 1;
    request->data = copy;
    return tcp->send(group, request);
}

TUTTI_BACKEND_EXPORT tutti_backend tutti_backend_v1 = {TUTTI_BACKEND_HEADER, .open = spoil_open, .close = spoil_close};

__attribute__((constructor)) static void make_table(void)
{
    const char *path = getenv("TUTTI_SPOIL_PATH"), *text = getenv("TUTTI_SPOIL");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    tcp = library != NULL ? dlsym(library, TUTTI_BACKEND_SYMBOL) : NULL;
    if (text != NULL) sscanf(text, "%7[a-z]@%d:%d", what, &rank, &n);
    if (tcp != NULL) tutti_backend_v1 = *tcp;
    tutti_backend_v1.name = "spoil";
    memset(tutti_backend_v1.native, 0, sizeof tutti_backend_v1.native); /* everything is sent as messages */
    tutti_backend_v1.open = spoil_open;
    tutti_backend_v1.close = spoil_close;
    tutti_backend_v1.send = spoil_send;
}
