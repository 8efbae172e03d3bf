#include "libs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "cuda/driver.h"

struct ncclb_libs ncclb_lib;

static struct {
    pthread_once_t once;
    int status;
    char text[500];
    char versions[120];
} load = {.once = PTHREAD_ONCE_INIT};

static void __attribute__((format(printf, 1, 2))) refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(load.text, sizeof load.text, format, arguments);
    va_end(arguments);
    load.status = TUTTI_ERR_BACKEND;
}

const char *ncclb_versions(void)
{
    return load.versions;
}

/* The text of a name after the headers' macros have had their way with it. */
#define TEXT_OF(name) #name
#define RESOLVE(name)                                                                                                  \
    if ((*(void **)&ncclb_lib.name = dlsym(library, TEXT_OF(name))) == NULL && missing == NULL) missing = TEXT_OF(name);
#define LOOK_UP(name) *(void **)&ncclb_lib.name = dlsym(library, TEXT_OF(name));

static void load_once(void)
{
    const char *missing = NULL;
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        refuse("NCCL is not installed here: %s (version 2 is needed; LD_LIBRARY_PATH adds a folder)", dlerror());
        return;
    }
    NCCLB_NCCL_CALLS(RESOLVE)
    if (missing != NULL) {
        refuse("NCCL is too old: libnccl.so.2 has no %s; 2.19 or newer is needed", missing);
        return;
    }
    NCCLB_NEWER_CALLS(LOOK_UP)
    *(void **)&ncclb_lib.all_to_all = dlsym(library, "ncclAlltoAll");
    *(void **)&ncclb_lib.gather = dlsym(library, "ncclGather");
    *(void **)&ncclb_lib.scatter = dlsym(library, "ncclScatter");
    *(void **)&ncclb_lib.window_register = dlsym(library, "ncclCommWindowRegister");
    *(void **)&ncclb_lib.window_deregister = dlsym(library, "ncclCommWindowDeregister");
    int version = 0;
    ncclb_lib.ncclGetVersion(&version);
    if (version / 10000 != 2)
        refuse("NCCL says that it is version code %d; this plug-in knows versions 2.19 to 2.x", version);
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
    return load.status == TUTTI_OK ? TUTTI_OK : host->error(load.status, "nccl: %s", load.text);
}
