/* Loads libfabric at run time.  The comment on load_library explains why it is not linked. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tcp/net/fabric_impl.h"

#ifdef __APPLE__
#define LIBRARY "libfabric.1.dylib"
#else
#define LIBRARY "libfabric.so.1"
#endif

struct fabric_library fabric_library;

static char load_error[256];
static bool loaded;

static bool find_symbols(void *library)
{
    struct {
        const char *name;
        void *to;
    } symbol[] = {
        {"fi_getinfo", &fabric_library.getinfo},   {"fi_freeinfo", &fabric_library.freeinfo},
        {"fi_dupinfo", &fabric_library.dupinfo},   {"fi_fabric", &fabric_library.fabric},
        {"fi_strerror", &fabric_library.strerror}, {"fi_version", &fabric_library.version},
    };
    for (size_t i = 0; i < sizeof symbol / sizeof *symbol; i++) {
        void *found = dlsym(library, symbol[i].name);
        if (found == NULL) {
            snprintf(load_error, sizeof load_error, LIBRARY " does not export %s; 1.11 or later is required",
                     symbol[i].name);
            return false;
        }
        *(void **)symbol[i].to = found;
    }
    return true;
}

/* Loads the library.  Distributions link libfabric with Intel's PSM libraries, whose constructors install signal
 * handlers that print a backtrace and end the process.  Environment variables prevent most of that, and the program's
 * handlers are restored afterwards.  The variables must be set before the library is mapped, so it cannot be linked. */
static void load_library(void)
{
    static const int signals[] = {SIGINT, SIGILL, SIGABRT, SIGBUS, SIGSEGV, SIGTERM, SIGFPE, SIGQUIT};
    enum { N = sizeof signals / sizeof *signals };
    struct sigaction before[N];
    setenv("IPATH_NO_BACKTRACE", "1", 0);
    setenv("HFI_NO_BACKTRACE", "1", 0);
    for (int i = 0; i < N; i++) sigaction(signals[i], NULL, &before[i]);
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        snprintf(load_error, sizeof load_error, LIBRARY " cannot be loaded (Debian: libfabric1): %s",
                 why != NULL ? why : "no reason given");
    } else if (find_symbols(library)) {
        if (fabric_library.version() < FI_VERSION(1, 11))
            snprintf(load_error, sizeof load_error, "libfabric %u.%u is too old; 1.11 or later is required",
                     FI_MAJOR(fabric_library.version()), FI_MINOR(fabric_library.version()));
        else
            loaded = true;
    }
    struct fi_info *info = NULL; /* the first query initializes all providers, which may install handlers too */
    if (loaded && fabric_library.getinfo(FI_VERSION(1, 11), NULL, NULL, 0, NULL, &info) == 0)
        fabric_library.freeinfo(info);
    for (int i = 0; i < N; i++) sigaction(signals[i], &before[i], NULL);
}

int fabric_load(const tutti_host *host)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_library);
    if (loaded) return TUTTI_OK;
    return host->error(TUTTI_ERR_BACKEND, "%s", load_error);
}

const char *fabric_load_error(void)
{
    return load_error;
}
