/* The few calls of NVIDIA's driver that tests need, looked up by name: the real driver's, or those of the stand-in in
 * tests/fakes if TUTTI_FAKES names its folder. */
#ifndef CUDA_SHIM_H
#define CUDA_SHIM_H

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef unsigned long long cu_memory;
typedef struct CUstream_st *cu_stream;

enum { CU_CAPTURE_GLOBAL = 0, CU_CAPTURE_THREAD_LOCAL = 1, CU_STREAM_NONBLOCKING = 1, CU_NOT_READY = 600 };

static struct {
    int (*init)(unsigned);
    int (*count)(int *);
    int (*retain)(void **, int);
    int (*release)(int);
    int (*state)(int, unsigned *, int *);
    int (*set_current)(void *);
    int (*get_current)(void **);
    int (*alloc)(cu_memory *, size_t);
    int (*free)(cu_memory);
    int (*copy)(cu_memory, cu_memory, size_t);
    int (*copy_in)(cu_memory, const void *, size_t, cu_stream);
    int (*copy_out)(void *, cu_memory, size_t, cu_stream);
    int (*fill)(cu_memory, unsigned, size_t, cu_stream);
    int (*call_host)(cu_stream, void (*)(void *), void *);
    int (*stream_new)(cu_stream *, unsigned);
    int (*stream_free)(cu_stream);
    int (*stream_wait)(cu_stream);
    int (*stream_query)(cu_stream);
    int (*capture)(cu_stream, int);
    int (*capture_end)(cu_stream, void **);
    int (*instantiate)(void **, void *, unsigned long long);
    int (*launch)(void *, cu_stream);
    int (*exec_free)(void *);
    int (*graph_free)(void *);
} cu;

/* Returns false, with a message, if there is no driver. */
static inline bool cu_load(void)
{
    static const struct {
        const char *name;
        void *into;
    } calls[] = {
        {"cuInit", &cu.init},
        {"cuDeviceGetCount", &cu.count},
        {"cuDevicePrimaryCtxRetain", &cu.retain},
        {"cuDevicePrimaryCtxRelease_v2", &cu.release},
        {"cuDevicePrimaryCtxGetState", &cu.state},
        {"cuCtxSetCurrent", &cu.set_current},
        {"cuCtxGetCurrent", &cu.get_current},
        {"cuMemAlloc_v2", &cu.alloc},
        {"cuMemFree_v2", &cu.free},
        {"cuMemcpy", &cu.copy},
        {"cuMemcpyHtoDAsync_v2", &cu.copy_in},
        {"cuMemcpyDtoHAsync_v2", &cu.copy_out},
        {"cuMemsetD32Async", &cu.fill},
        {"cuLaunchHostFunc", &cu.call_host},
        {"cuStreamCreate", &cu.stream_new},
        {"cuStreamDestroy_v2", &cu.stream_free},
        {"cuStreamSynchronize", &cu.stream_wait},
        {"cuStreamQuery", &cu.stream_query},
        {"cuStreamBeginCapture_v2", &cu.capture},
        {"cuStreamEndCapture", &cu.capture_end},
        {"cuGraphInstantiateWithFlags", &cu.instantiate},
        {"cuGraphLaunch", &cu.launch},
        {"cuGraphExecDestroy", &cu.exec_free},
        {"cuGraphDestroy", &cu.graph_free},
    };
    const char *fakes = getenv("TUTTI_FAKES"), *names[] = {"libcuda.so.1", "libnccl.so.2"};
    void *driver = NULL;
    for (int i = 0; i < (fakes != NULL ? 2 : 1); i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s%s%s", fakes != NULL ? fakes : "", fakes != NULL ? "/" : "", names[i]);
        void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* the plug-in then finds it by its name */
        if (library == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return false;
        }
        if (i == 0) driver = library;
    }
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if ((*(void **)calls[i].into = dlsym(driver, calls[i].name)) == NULL) {
            fprintf(stderr, "the driver has no %s\n", calls[i].name);
            return false;
        }
    return cu.init(0) == 0;
}

/* Makes the device's context current on this thread. */
static inline bool cu_use(int device)
{
    void *context = NULL;
    return cu.retain(&context, device) == 0 && cu.set_current(context) == 0;
}

#endif
