/* libtutti_mpi.so: selects the plug-in for the MPI of the program, or of its launcher.
 *
 * libtutti_mpi_openmpi.so and libtutti_mpi_mpich.so, or one of them, are installed beside it.  A process loads only
 * one, because both export functions of the same names.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <tutti/backend.h>
#include <unistd.h>

#define NAME "mpi"

/* Returns the MPI that the program itself has loaded, or NULL. */
static const char *program_mpi(void)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "MPI_Initialized");
    if (symbol == NULL || dladdr(symbol, &info) == 0) return NULL;
    return strstr(info.dli_fname, "libmpich") != NULL ? "mpich" : "openmpi";
}

static const char *select_mpi(const tutti_host *host)
{
    const char *program = program_mpi();
    if (program != NULL) return program;
    if (host->env("OMPI_COMM_WORLD_SIZE") != NULL || host->env("PMIX_NAMESPACE") != NULL) return "openmpi";
    return host->env("PMI_FD") != NULL || host->env("PMI_RANK") != NULL ? "mpich" : "openmpi";
}

/* Writes the path of the plug-in for `mpi`, in the folder of this one.  Returns true if it exists. */
static bool find_plugin(const char *mpi, char path[PATH_MAX])
{
    Dl_info self;
    const char *slash = dladdr((void *)(uintptr_t)find_plugin, &self) != 0 ? strrchr(self.dli_fname, '/') : NULL;
    int folder = slash != NULL ? (int)(slash - self.dli_fname) : 0;
    snprintf(path, PATH_MAX, "%.*s/libtutti_mpi_%s.so", folder, slash != NULL ? self.dli_fname : ".", mpi);
    return access(path, F_OK) == 0;
}

/* Loads the matching plug-in and returns its table under the name mpi.  If the matching one was not built the other is
 * loaded, whose error message explains that it does not support this launcher. */
static const tutti_backend *load_table(const tutti_host *host)
{
    static tutti_backend loaded;
    char path[PATH_MAX];
    const char *right = select_mpi(host);
    if (!find_plugin(right, path)) find_plugin(strcmp(right, "mpich") == 0 ? "openmpi" : "mpich", path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *why = library == NULL ? dlerror() : NULL;
    const tutti_backend *table = library != NULL ? dlsym(library, TUTTI_BACKEND_SYMBOL) : NULL;
    if (table == NULL || table->abi != TUTTI_BACKEND_ABI) {
        host->error(TUTTI_ERR_BACKEND, "cannot load %s: %s", path,
                    why != NULL     ? why
                    : table == NULL ? "it is not a Tutti backend"
                                    : "it was built for another version of Tutti");
        return NULL;
    }
    if (TUTTI_HAS(table, instead)) table = table->instead(host);
    if (table == NULL) return NULL;
    memcpy(&loaded, table, table->size < sizeof loaded ? table->size : sizeof loaded);
    if (loaded.size > sizeof loaded) loaded.size = sizeof loaded;
    loaded.name = NAME;
    loaded.instead = NULL;
    return &loaded;
}

TUTTI_BACKEND_EXPORT extern const tutti_backend tutti_backend_v1;

const tutti_backend tutti_backend_v1 = {TUTTI_BACKEND_HEADER, .name = NAME, .instead = load_table};
