#include "gpu/cuda_shim.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

struct cuda_driver cu;

bool cu_load(void)
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

bool cu_use(int device)
{
    void *context = NULL;
    return cu.retain(&context, device) == 0 && cu.set_current(context) == 0;
}
