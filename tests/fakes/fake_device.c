/* FAKE devices, contexts and memory. */
#include "fake_cuda.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct CUctx_st fake_contexts[FAKE_DEVICES_MAX];

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local CUcontext stack[16];
static _Thread_local int depth;

static int device_count(void)
{
    const char *text = getenv("FAKE_CUDA_DEVICES");
    int n = text != NULL ? atoi(text) : 8;
    return n > FAKE_DEVICES_MAX ? FAKE_DEVICES_MAX : n;
}

CUresult cuInit(unsigned int flags)
{
    (void)flags;
    static atomic_bool printed;
    if (!atomic_exchange(&printed, true))
        fprintf(stderr, "FAKE CUDA: %d devices of host memory, no GPU\n", device_count());
    return device_count() > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    static _Thread_local char text[64];
    snprintf(text, sizeof text,
             error == CUDA_ERROR_OUT_OF_MEMORY ? "FAKE CUDA_ERROR_OUT_OF_MEMORY" : "FAKE CUDA error %d", (int)error);
    *name = text;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = device_count();
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    if (ordinal < 0 || ordinal >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    memset(uuid, 0xfa, sizeof *uuid);
    uuid->bytes[15] = (char)device;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
    snprintf(text, (size_t)size, "FAKE:%02d:00.0", device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    (void)device;
    const char *major = getenv("FAKE_CUDA_CAPABILITY");
    /* from 9 on NCCL reduces float8, which FAKE NCCL does not */
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? (major != NULL ? atoi(major) : 8) : 0;
    return CUDA_SUCCESS;
}

/* ---- contexts ---------------------------------------------------------------------------------------------- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    pthread_mutex_lock(&device_lock);
    fake_contexts[device].device = device;
    fake_contexts[device].retained++;
    pthread_mutex_unlock(&device_lock);
    *context = &fake_contexts[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    pthread_mutex_lock(&device_lock);
    fake_contexts[device].retained--;
    pthread_mutex_unlock(&device_lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    *flags = 0;
    *active = fake_contexts[device].retained > 0;
    return CUDA_SUCCESS;
}

CUcontext fake_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = fake_current();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    if (depth == 0) depth = 1;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    if (depth == 16) return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[--depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------------------------ */

struct range {
    LIST_ENTRY(range) link;
    char *begin;
    size_t bytes;
    int device;
    bool host; /* pinned */
};

static LIST_HEAD(, range) ranges = LIST_HEAD_INITIALIZER(ranges);

static CUresult allocate(void **memory, size_t bytes, bool host)
{
    if (!fake_may()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (fake_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    struct range *range = calloc(1, sizeof *range);
    if (range == NULL || posix_memalign((void **)&range->begin, 512, bytes) != 0) {
        free(range);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->bytes = bytes;
    range->device = fake_current()->device;
    range->host = host;
    pthread_mutex_lock(&device_lock);
    LIST_INSERT_HEAD(&ranges, range, link);
    pthread_mutex_unlock(&device_lock);
    *memory = range->begin;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *memory, size_t bytes)
{
    return allocate((void **)memory, bytes, false);
}

CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags)
{
    const char *most = getenv("FAKE_CUDA_PINNED_MOST");
    (void)flags;
    if (most != NULL && bytes > strtoull(most, NULL, 10)) return CUDA_ERROR_OUT_OF_MEMORY;
    return allocate(memory, bytes, true);
}

static struct range *find(const char *at)
{
    struct range *range;
    LIST_FOREACH(range, &ranges, link)
    if (at >= range->begin && at < range->begin + range->bytes) return range;
    return NULL;
}

static CUresult give_back(char *memory, bool host)
{
    pthread_mutex_lock(&device_lock);
    struct range *range = find(memory);
    if (range != NULL && (range->host != host || range->begin != memory)) range = NULL;
    if (range != NULL) LIST_REMOVE(range, link);
    pthread_mutex_unlock(&device_lock);
    if (range == NULL) return CUDA_ERROR_INVALID_VALUE;
    free(range->begin);
    free(range);
    return CUDA_SUCCESS;
}

/* Waits for work that may use the memory, as CUDA does. */
CUresult cuMemFree(CUdeviceptr memory)
{
    pthread_mutex_lock(&device_lock);
    const struct range *range = find((char *)memory);
    int device = range != NULL ? range->device : -1;
    pthread_mutex_unlock(&device_lock);
    if (device >= 0) fake_wait_for(&fake_contexts[device]);
    return give_back((char *)memory, false);
}

CUresult cuMemFreeHost(void *memory)
{
    if (!fake_may()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return give_back(memory, true);
}

CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *what, void **into, CUdeviceptr pointer)
{
    pthread_mutex_lock(&device_lock);
    const struct range *range = find((char *)pointer);
    int device = range != NULL ? range->device : -1;
    int type = range == NULL ? 0 : range->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    pthread_mutex_unlock(&device_lock);
    for (unsigned int i = 0; i < n; i++) *(int *)into[i] = what[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? type : device;
    return CUDA_SUCCESS;
}

/* True if all of it is memory of this kind.  On a GPU, a copy to or from other memory crashes. */
static bool is_within(const void *at, size_t bytes, bool host)
{
    pthread_mutex_lock(&device_lock);
    const struct range *range = find(at);
    bool within = range != NULL && range->host == host && (const char *)at + bytes <= range->begin + range->bytes;
    pthread_mutex_unlock(&device_lock);
    return within;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    unsigned int value;
};

static void copy_run(void *argument, uint64_t number)
{
    (void)number;
    const struct copy *copy = argument;
    if (copy->from != NULL) memcpy(copy->to, copy->from, copy->bytes);
    for (size_t i = 0; copy->from == NULL && i < copy->bytes / 4; i++) ((unsigned int *)copy->to)[i] = copy->value;
}

static CUresult enqueue_copy(struct copy what, CUstream stream)
{
    static const struct fake_work work = {NULL, copy_run, free};
    struct copy *copy = malloc(sizeof *copy);
    if (copy == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *copy = what;
    return fake_enqueue(stream, &work, copy);
}

struct arrival {
    CUdeviceptr to;
    size_t bytes;
    char data[];
};

static void arrive(void *argument, uint64_t number)
{
    static const struct timespec late = {0, 300000};
    (void)number;
    const struct arrival *arrival = argument;
    nanosleep(&late, NULL);
    memcpy((void *)arrival->to, arrival->data, arrival->bytes);
}

/* Copies unpinned host memory as CUDA does.  The call returns when the memory has been read.  The rest of the copy
 * stays in the legacy stream, for which other streams do not wait. */
static CUresult bring(CUdeviceptr to, const void *from, size_t bytes)
{
    static const struct fake_work work = {NULL, arrive, free};
    struct arrival *arrival = malloc(sizeof *arrival + bytes);
    if (arrival == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    arrival->to = to;
    arrival->bytes = bytes;
    memcpy(arrival->data, from, bytes);
    return fake_enqueue(NULL, &work, arrival);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    if (fake_current() == NULL) return CUDA_ERROR_INVALID_CONTEXT;
    cuStreamSynchronize(NULL); /* keeps the legacy stream's order */
    bool pageable = !is_within((void *)from, 1, false) && !is_within((void *)from, 1, true);
    if (pageable && is_within((void *)to, bytes, false)) return bring(to, (void *)from, bytes);
    memcpy((void *)to, (void *)from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return enqueue_copy((struct copy){(void *)to, (void *)from, bytes, 0}, stream);
}

/* Copies host memory.  As in CUDA, memory that is not pinned is copied before the call returns. */
static CUresult copy_host(struct copy copy, const void *device, const void *host, CUstream stream)
{
    if (!is_within(device, copy.bytes, false)) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = enqueue_copy(copy, stream);
    bool pinned = is_within(host, copy.bytes, true);
    return result != CUDA_SUCCESS || pinned ? result : cuStreamSynchronize(stream);
}

CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    return copy_host((struct copy){(void *)to, from, bytes, 0}, (void *)to, from, stream);
}

CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    return copy_host((struct copy){to, (void *)from, bytes, 0}, (void *)from, to, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t n, CUstream stream)
{
    return enqueue_copy((struct copy){(void *)to, NULL, n * 4, value}, stream);
}
