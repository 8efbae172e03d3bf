#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>

#include "library.h"

struct driver driver;

static struct {
    pthread_once_t once;
    struct library library;
} load = {.once = PTHREAD_ONCE_INIT};

const char *driver_error(CUresult result)
{
    const char *name = NULL;
    if (driver.cuGetErrorName == NULL || driver.cuGetErrorName(result, &name) != CUDA_SUCCESS) return "unknown error";
    return name;
}

#define RESOLVE(name) *(void **)&driver.name = library_need(&load.library, LIBRARY_NAME(name));

static void load_once(void)
{
    if (!library_open(&load.library, "libcuda.so.1")) {
        library_refuse(&load.library, "NVIDIA's driver is not installed on this host: %s", dlerror());
        return;
    }
    DRIVER_CALLS(RESOLVE)
    *(void **)&driver.elapsed = library_need(&load.library, "cuEventElapsedTime");
    if (load.library.missing != NULL) {
        library_refuse(&load.library,
                       "NVIDIA's driver is too old: libcuda.so.1 has no %s; install one for CUDA 12 or newer",
                       load.library.missing);
        return;
    }
    CUresult result = driver.cuInit(0);
    if (result != CUDA_SUCCESS) {
        library_refuse(
            &load.library, "cannot initialize NVIDIA's driver (%s)%s", driver_error(result),
            result == CUDA_ERROR_NO_DEVICE ? ": this host has no GPU, or CUDA_VISIBLE_DEVICES hides all of them" : "");
        return;
    }
    driver.cuDriverGetVersion(&driver.version);
}

int driver_load(const tutti_host *host, const char *who)
{
    pthread_once(&load.once, load_once);
    return load.library.refused ? host->error(TUTTI_ERR_BACKEND, "%s: %s", who, load.library.why) : TUTTI_OK;
}
