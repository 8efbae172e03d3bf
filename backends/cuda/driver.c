#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

struct driver driver;

static struct {
    pthread_once_t once;
    int status;
    char text[500];
} load = {.once = PTHREAD_ONCE_INIT};

static void __attribute__((format(printf, 1, 2))) refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(load.text, sizeof load.text, format, arguments);
    va_end(arguments);
    load.status = TUTTI_ERR_BACKEND;
}

const char *driver_error(CUresult result)
{
    const char *name = NULL;
    if (driver.cuGetErrorName == NULL || driver.cuGetErrorName(result, &name) != CUDA_SUCCESS) return "unknown error";
    return name;
}

/* The text of a name after the header's macros have had their way with it. */
#define TEXT_OF(name) #name
#define RESOLVE(name)                                                                                                  \
    if ((*(void **)&driver.name = dlsym(library, TEXT_OF(name))) == NULL && missing == NULL) missing = TEXT_OF(name);

static void load_once(void)
{
    const char *missing = NULL;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        refuse("NVIDIA's driver is not installed here: %s", dlerror());
        return;
    }
    DRIVER_CALLS(RESOLVE)
    if ((*(void **)&driver.elapsed = dlsym(library, "cuEventElapsedTime")) == NULL) missing = "cuEventElapsedTime";
    if (missing != NULL) {
        refuse("NVIDIA's driver is too old: libcuda.so.1 has no %s; CUDA 12 or newer is needed", missing);
        return;
    }
    CUresult result = driver.cuInit(0);
    if (result != CUDA_SUCCESS) {
        refuse("NVIDIA's driver does not start (%s)%s", driver_error(result),
               result == CUDA_ERROR_NO_DEVICE ? ": there is no GPU, or CUDA_VISIBLE_DEVICES hides all" : "");
        return;
    }
    driver.cuDriverGetVersion(&driver.version);
}

int driver_load(const tutti_host *host, const char *who)
{
    pthread_once(&load.once, load_once);
    return load.status == TUTTI_OK ? TUTTI_OK : host->error(load.status, "%s: %s", who, load.text);
}
