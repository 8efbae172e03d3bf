#include "libs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "cuda/driver.h"
#include "cuda/library.h"

struct ncclb_libs ncclb_lib;

static struct {
    pthread_once_t once;
    struct library library;
    char versions[120];
} load = {.once = PTHREAD_ONCE_INIT};

const char *ncclb_versions(void)
{
    return load.versions;
}

#define RESOLVE(name) *(void **)&ncclb_lib.name = library_need(&load.library, LIBRARY_NAME(name));
#define LOOK_UP(name) *(void **)&ncclb_lib.name = library_find(&load.library, LIBRARY_NAME(name));

static void load_once(void)
{
    if (!library_open(&load.library, "libnccl.so.2")) {
        library_refuse(&load.library,
                       "NCCL is not installed on this host: %s (version 2 is required; LD_LIBRARY_PATH adds a folder)",
                       dlerror());
        return;
    }
    NCCLB_NCCL_CALLS(RESOLVE)
    if (load.library.missing != NULL) {
        library_refuse(&load.library, "NCCL is too old: libnccl.so.2 has no %s; install 2.19 or newer",
                       load.library.missing);
        return;
    }
    NCCLB_NEWER_CALLS(LOOK_UP)
    *(void **)&ncclb_lib.all_to_all = library_find(&load.library, "ncclAlltoAll");
    *(void **)&ncclb_lib.gather = library_find(&load.library, "ncclGather");
    *(void **)&ncclb_lib.scatter = library_find(&load.library, "ncclScatter");
    *(void **)&ncclb_lib.window_register = library_find(&load.library, "ncclCommWindowRegister");
    *(void **)&ncclb_lib.window_deregister = library_find(&load.library, "ncclCommWindowDeregister");
    int version = 0;
    ncclb_lib.ncclGetVersion(&version);
    if (version / 10000 != 2)
        library_refuse(&load.library, "NCCL reports version code %d; this plug-in supports 2.19 to 2.x", version);
    ncclb_lib.version = version;
    int d = driver.version;
    snprintf(load.versions, sizeof load.versions, "NCCL %d.%d.%d, driver for CUDA %d.%d, built for CUDA %d.%d",
             version / 10000, version / 100 % 100, version % 100, d / 1000, d % 1000 / 10, CUDA_VERSION / 1000,
             CUDA_VERSION % 1000 / 10);
}

int ncclb_load(const tutti_host *host)
{
    int status = driver_load(host, "nccl");
    if (status != TUTTI_OK) return status;
    pthread_once(&load.once, load_once);
    return load.library.refused ? host->error(TUTTI_ERR_BACKEND, "nccl: %s", load.library.why) : TUTTI_OK;
}
