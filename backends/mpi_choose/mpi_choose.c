/* libtutti_mpi.so: hands everything on to the plug-in for the MPI of the program, or of its launcher.
 *
 * libtutti_mpi_openmpi.so and libtutti_mpi_mpich.so lie beside it, or one of them.  Only one is ever loaded in a
 * process: both have functions of the same names.  A group's state holds the other plug-in's, made as that one asks.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/backend.h>
#include <unistd.h>

#include "../mpi/mpi_numbers.h"

struct choice {
    void *state;
};

static const tutti_backend *chosen;
static char failure[600];
static const tutti_host *host_of_all;

/* ---- which ---------------------------------------------------------------------------------------------------------
 */

/* The library that the program itself came with, if any. */
static const char *of_program(void)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    if (symbol == NULL || dladdr(symbol, &info) == 0) return NULL;
    return strstr(info.dli_fname, "libmpich") != NULL ? "mpich" : "openmpi";
}

static const char *which(void)
{
    const char *program = of_program();
    if (program != NULL) return program;
    if (host_of_all->env("OMPI_COMM_WORLD_SIZE") != NULL || host_of_all->env("PMIX_NAMESPACE") != NULL)
        return "openmpi";
    return host_of_all->env("PMI_FD") != NULL || host_of_all->env("PMI_RANK") != NULL ? "mpich" : "openmpi";
}

/* The path of the plug-in for mpi, in the folder of this one; whether it is there. */
static bool find(const char *mpi, char path[PATH_MAX])
{
    Dl_info self;
    const char *slash = dladdr(&chosen, &self) != 0 ? strrchr(self.dli_fname, '/') : NULL;
    int folder = slash != NULL ? (int)(slash - self.dli_fname) : 0;
    snprintf(path, PATH_MAX, "%.*s/libtutti_mpi_%s.so", folder, slash != NULL ? self.dli_fname : ".", mpi);
    return access(path, F_OK) == 0;
}

/* Where the right one was not built the other is loaded: it says that it does not understand this launcher. */
static void load(void)
{
    char path[PATH_MAX];
    const char *right = which();
    if (!find(right, path)) find(strcmp(right, "mpich") == 0 ? "openmpi" : "mpich", path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why = library == NULL ? dlerror() : NULL;
    chosen = library != NULL ? dlsym(library, TUTTI_BACKEND_SYMBOL) : NULL;
    if (chosen != NULL) return;
    snprintf(failure, sizeof failure, "%s does not load: %s", path, why != NULL ? why : "it is no plug-in");
}

static int choose(const tutti_host *host)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    host_of_all = host;
    pthread_once(&once, load);
    return chosen != NULL ? TUTTI_OK : host->error(TUTTI_ERR_BACKEND, "%s", failure);
}

/* ---- handing on ----------------------------------------------------------------------------------------------------
 */

static int choice_open(void *group, const tutti_group_info *info, const tutti_host *host)
{
    struct choice *choice = group;
    tutti_group_info inner = *info;
    int status = choose(host);
    if (status != TUTTI_OK) return status;
    size_t bytes = (chosen->group_bytes + 63) / 64 * 64;
    choice->state = aligned_alloc(64, bytes);
    if (choice->state == NULL) return host->error(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    memset(choice->state, 0, bytes);
    if (info->parent != NULL) inner.parent = ((struct choice *)info->parent)->state;
    return chosen->open(choice->state, &inner, host);
}

static void choice_close(void *group)
{
    struct choice *choice = group;
    if (choice->state != NULL) chosen->close(choice->state);
    free(choice->state);
    choice->state = NULL;
}

static int choice_native(void *group, const tutti_op *op, tutti_request *request)
{
    return chosen->native[op->kind](((struct choice *)group)->state, op, request);
}

static int choice_send(void *group, tutti_request *request)
{
    return chosen->send(((struct choice *)group)->state, request);
}

static int choice_recv(void *group, tutti_request *request)
{
    return chosen->recv(((struct choice *)group)->state, request);
}

static int choice_recv_reduce(void *group, tutti_request *request)
{
    return chosen->recv_reduce(((struct choice *)group)->state, request);
}

static int choice_progress(void *group)
{
    return chosen->progress(((struct choice *)group)->state);
}

static int choice_arm(void *group, int *descriptors)
{
    return chosen->arm(((struct choice *)group)->state, descriptors);
}

static int choice_cancel(void *group, tutti_request *request)
{
    return chosen->cancel(((struct choice *)group)->state, request);
}

static int choice_notify(void *group, int32_t peer, const void *message, size_t bytes)
{
    return chosen->notify(((struct choice *)group)->state, peer, message, bytes);
}

static int choice_describe(const tutti_host *host, void *group, char *text, size_t capacity)
{
    int status = choose(host);
    return status == TUTTI_OK ? chosen->describe(host, group, text, capacity) : status;
}

static void choice_abort(void *group)
{
    chosen->abort(((struct choice *)group)->state);
}

TUTTI_BACKEND_EXPORT extern const tutti_backend tutti_backend_v1;

/* As in mpi_backend.c. */
const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,
    .name = "mpi",
    .version = "1, on Open MPI or MPICH",
    .group_bytes = sizeof(struct choice),
    .devices = 1u << TUTTI_CPU,
    .open = choice_open,
    .close = choice_close,
    .native = {[TUTTI_BROADCAST] = choice_native,
               [TUTTI_ALL_REDUCE] = choice_native,
               [TUTTI_REDUCE] = choice_native,
               [TUTTI_ALL_GATHER] = choice_native,
               [TUTTI_GATHER] = choice_native,
               [TUTTI_SCATTER] = choice_native,
               [TUTTI_REDUCE_SCATTER] = choice_native,
               [TUTTI_ALL_TO_ALL] = choice_native},
    .send = choice_send,
    .recv = choice_recv,
    .recv_reduce = choice_recv_reduce,
    .progress = choice_progress,
    .arm = choice_arm,
    .cancel = choice_cancel,
    .notify = choice_notify,
    .abort = choice_abort,
    MPIB_NUMBERS,
    .describe = choice_describe,
};
