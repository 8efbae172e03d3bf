/* NCCL (libnccl.so.2), loaded on first use like the driver: see cuda/driver.h. */
#ifndef NCCLB_LIBS_H
#define NCCLB_LIBS_H

#include <nccl.h>
#include <tutti/backend.h>

/* Names are expanded by the header's macros, so that a call and its version suffix stay together. */
#define NCCLB_NCCL_CALLS(X)                                                                                            \
    X(ncclGetVersion)                                                                                                  \
    X(ncclGetUniqueId)                                                                                                 \
    X(ncclCommSplit)                                                                                                   \
    X(ncclCommInitRankConfig)                                                                                          \
    X(ncclCommFinalize)                                                                                                \
    X(ncclCommDestroy)                                                                                                 \
    X(ncclCommAbort)                                                                                                   \
    X(ncclCommGetAsyncError)                                                                                           \
    X(ncclGetErrorString)                                                                                              \
    X(ncclGetLastError)                                                                                                \
    X(ncclRedOpCreatePreMulSum)                                                                                        \
    X(ncclRedOpDestroy)                                                                                                \
    X(ncclAllReduce)                                                                                                   \
    X(ncclReduce)                                                                                                      \
    X(ncclBroadcast)                                                                                                   \
    X(ncclAllGather)                                                                                                   \
    X(ncclReduceScatter)                                                                                               \
    X(ncclSend)                                                                                                        \
    X(ncclRecv)                                                                                                        \
    X(ncclGroupStart)                                                                                                  \
    X(ncclGroupEnd)

/* Since 2.19; NULL if the loaded NCCL lacks them. */
#define NCCLB_NEWER_CALLS(X)                                                                                           \
    X(ncclMemAlloc)                                                                                                    \
    X(ncclMemFree)                                                                                                     \
    X(ncclCommRegister)                                                                                                \
    X(ncclCommDeregister)

/* Since 2.28; declared here for older headers. */
typedef ncclResult_t (*ncclb_all_to_all_fn)(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
typedef ncclResult_t (*ncclb_rooted_fn)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
/* Since 2.27, likewise; a window is a pointer to an object of NCCL. */
typedef ncclResult_t (*ncclb_window_register_fn)(ncclComm_t, void *, size_t, void **, int);
typedef ncclResult_t (*ncclb_window_deregister_fn)(ncclComm_t, void *);

struct ncclb_libs {
#define NCCLB_MEMBER(name) __typeof__(name) *name;
    NCCLB_NCCL_CALLS(NCCLB_MEMBER)
    NCCLB_NEWER_CALLS(NCCLB_MEMBER)
#undef NCCLB_MEMBER
    ncclb_all_to_all_fn all_to_all;
    ncclb_rooted_fn gather, scatter;
    ncclb_window_register_fn window_register;
    ncclb_window_deregister_fn window_deregister;
    int version; /* 22809 is 2.28.9 */
};

extern struct ncclb_libs ncclb_lib;

/* Loads NCCL and the driver and initializes them once; later calls return the same result.  The error message names
 * what is missing. */
int ncclb_load(const tutti_host *host);

/* Returns for example "NCCL 2.28.9, driver for CUDA 13.0, built for CUDA 13.0". */
const char *ncclb_versions(void);

#endif
