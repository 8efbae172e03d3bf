#include "bench/memory.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>

static size_t tensor_bytes(tutti_tensor tensor)
{
    return (size_t)(tensor.numel * tutti_dtype_bytes(tensor.dtype));
}

static void die(const char *what, size_t bytes)
{
    fprintf(stderr, "tutti-bench: %s (%zu bytes)\n", what, bytes);
    exit(1);
}

tutti_tensor memory_new(int64_t numel, tutti_dtype dtype, bool from_tutti)
{
    tutti_tensor tensor = {NULL, numel, dtype, tutti_get_device(NULL)};
    size_t bytes = tensor_bytes(tensor);
    if (from_tutti || tensor.device.type != TUTTI_CPU) {
        TUTTI_CHECK(tutti_alloc(NULL, (int64_t)bytes, &tensor.data));
    } else {
        tensor.data = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (tensor.data == MAP_FAILED) die("no memory for a buffer", bytes);
    }
    return tensor;
}

void memory_free(tutti_tensor tensor, bool from_tutti)
{
    if (from_tutti || tensor.device.type != TUTTI_CPU)
        TUTTI_CHECK(tutti_free(NULL, tensor.data));
    else
        munmap(tensor.data, tensor_bytes(tensor) + 1);
}

/* Returns the driver's copy function, or NULL.  Loads CUDA's driver by name, so the program builds and runs on hosts
 * without CUDA.  Makes the device current in this thread. */
static int (*load_copy(tutti_device device))(uintptr_t, uintptr_t, size_t)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
    int (*retain)(void **, int) = NULL, (*use)(void *) = NULL, (*copy)(uintptr_t, uintptr_t, size_t) = NULL;
    if (!driver) return NULL;
    *(void **)&retain = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&use = dlsym(driver, "cuCtxSetCurrent");
    *(void **)&copy = dlsym(driver, "cuMemcpy");
    return retain && use && retain(&context, device.index) == 0 && use(context) == 0 ? copy : NULL;
}

static void device_copy(tutti_device device, void *to, const void *from, size_t bytes)
{
    static int (*copy)(uintptr_t, uintptr_t, size_t);
    if (device.type == TUTTI_CPU) {
        memcpy(to, from, bytes);
        return;
    }
    if (!copy) copy = load_copy(device);
    if (!copy) die("cannot load CUDA's driver (libcuda.so.1) for a copy", bytes);
    if (copy((uintptr_t)to, (uintptr_t)from, bytes) != 0) die("cannot copy to or from the CUDA device", bytes);
}

void memory_write(tutti_tensor tensor, const void *from)
{
    if (tensor.numel > 0) device_copy(tensor.device, tensor.data, from, tensor_bytes(tensor));
}

void memory_read(void *to, tutti_tensor tensor)
{
    if (tensor.numel > 0) device_copy(tensor.device, to, tensor.data, tensor_bytes(tensor));
}

void memory_spoil(tutti_tensor tensor)
{
    static char spoilt[1 << 16];
    size_t left = tensor_bytes(tensor), n;
    memset(spoilt, 0xff, sizeof spoilt);
    for (char *at = tensor.data; left > 0; at += n, left -= n) {
        n = left < sizeof spoilt ? left : sizeof spoilt;
        device_copy(tensor.device, at, spoilt, n);
    }
}
