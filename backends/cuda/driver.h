/* NVIDIA's driver (libcuda.so.1), loaded on first use.  A plug-in thus loads on any machine and can report what is
 * missing.  The CUDA runtime is not used; its streams and events are the driver's. */
#ifndef DRIVER_H
#define DRIVER_H

#include <cuda.h>
#include <tutti/backend.h>

/* Names are expanded by the header's macros, so that a call and its version suffix stay together. */
#define DRIVER_CALLS(X)                                                                                                \
    X(cuInit)                                                                                                          \
    X(cuDriverGetVersion)                                                                                              \
    X(cuGetErrorName)                                                                                                  \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetUuid)                                                                                                 \
    X(cuDeviceGetPCIBusId)                                                                                             \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuDevicePrimaryCtxRelease)                                                                                       \
    X(cuCtxGetCurrent)                                                                                                 \
    X(cuCtxPushCurrent)                                                                                                \
    X(cuCtxPopCurrent)                                                                                                 \
    X(cuCtxSynchronize)                                                                                                \
    X(cuCtxGetStreamPriorityRange)                                                                                     \
    X(cuStreamCreateWithPriority)                                                                                      \
    X(cuStreamDestroy)                                                                                                 \
    X(cuStreamGetCtx)                                                                                                  \
    X(cuStreamQuery)                                                                                                   \
    X(cuStreamWaitEvent)                                                                                               \
    X(cuThreadExchangeStreamCaptureMode)                                                                               \
    X(cuStreamIsCapturing)                                                                                             \
    X(cuLaunchHostFunc)                                                                                                \
    X(cuEventCreate)                                                                                                   \
    X(cuEventDestroy)                                                                                                  \
    X(cuEventRecord)                                                                                                   \
    X(cuEventQuery)                                                                                                    \
    X(cuPointerGetAttributes)                                                                                          \
    X(cuMemAlloc)                                                                                                      \
    X(cuMemFree)                                                                                                       \
    X(cuMemHostAlloc)                                                                                                  \
    X(cuMemFreeHost)                                                                                                   \
    X(cuMemcpyDtoHAsync)                                                                                               \
    X(cuMemcpyHtoDAsync)

struct driver {
#define DRIVER_MEMBER(name) __typeof__(name) *name;
    DRIVER_CALLS(DRIVER_MEMBER)
#undef DRIVER_MEMBER
    CUresult (*elapsed)(float *ms, CUevent begin,
                        CUevent end); /* the unversioned cuEventElapsedTime, exported by all drivers */
    int version;                      /* newest CUDA version supported: 13000 is 13.0 */
};

extern struct driver driver;

/* Loads and initializes the driver once; later calls return the same result.  Error messages begin with `who`. */
int driver_load(const tutti_host *host, const char *who);

/* Returns the name of a driver error, such as "CUDA_ERROR_OUT_OF_MEMORY". */
const char *driver_error(CUresult result);

#endif
