/* libtutti_mpi.so: the plug-in for the MPI of the program, or of its launcher.
 *
 * libtutti_mpi_openmpi.so and libtutti_mpi_mpich.so lie beside it, or one of them.  Only one is ever loaded in a
 * process: both have functions of the same names.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <tutti/backend.h>
#include <unistd.h>

#define NAME "mpi"

/* The library that the program itself came with, if any. */
static const char *of_program(void)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    if (symbol == NULL || dladdr(symbol, &info) == 0) return NULL;
    return strstr(info.dli_fname, "libmpich") != NULL ? "mpich" : "openmpi";
}

static const char *which(const tutti_host *host)
{
    const char *program = of_program();
    if (program != NULL) return program;
    if (host->env("OMPI_COMM_WORLD_SIZE") != NULL || host->env("PMIX_NAMESPACE") != NULL) return "openmpi";
    return host->env("PMI_FD") != NULL || host->env("PMI_RANK") != NULL ? "mpich" : "openmpi";
}

/* The path of the plug-in for mpi, in the folder of this one; whether it is there. */
static bool find(const char *mpi, char path[PATH_MAX])
{
    Dl_info self;
    const char *slash = dladdr((void *)(uintptr_t)find, &self) != 0 ? strrchr(self.dli_fname, '/') : NULL;
    int folder = slash != NULL ? (int)(slash - self.dli_fname) : 0;
    snprintf(path, PATH_MAX, "%.*s/libtutti_mpi_%s.so", folder, slash != NULL ? self.dli_fname : ".", mpi);
    return access(path, F_OK) == 0;
}

/* Its table, by the name that it was asked for.  Where the right one was not built the other is loaded: it says that it
 * does not understand this launcher. */
static const tutti_backend *choose(const tutti_host *host)
{
    static tutti_backend chosen;
    char path[PATH_MAX];
    const char *right = which(host);
    if (!find(right, path)) find(strcmp(right, "mpich") == 0 ? "openmpi" : "mpich", path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why = library == NULL ? dlerror() : NULL;
    const tutti_backend *table = library != NULL ? dlsym(library, TUTTI_BACKEND_SYMBOL) : NULL;
    if (table == NULL || table->abi != TUTTI_BACKEND_ABI) {
        host->error(TUTTI_ERR_BACKEND, "%s does not load: %s", path,
                    why != NULL     ? why
                    : table == NULL ? "it is no plug-in"
                                    : "it was built for another version of Tutti");
        return NULL;
    }
    if (TUTTI_HAS(table, instead)) table = table->instead(host);
    if (table == NULL) return NULL;
    memcpy(&chosen, table, table->size < sizeof chosen ? table->size : sizeof chosen);
    if (chosen.size > sizeof chosen) chosen.size = sizeof chosen;
    chosen.name = NAME;
    chosen.instead = NULL;
    return &chosen;
}

TUTTI_BACKEND_EXPORT extern const tutti_backend tutti_backend_v1;

const tutti_backend tutti_backend_v1 = {TUTTI_BACKEND_HEADER, .name = NAME, .instead = choose};
