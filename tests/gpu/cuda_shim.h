/* The few calls of NVIDIA's driver that tests need, looked up by name: in the real driver, or in the stand-in of
 * tests/fakes if TUTTI_FAKES names its folder. */
#ifndef CUDA_SHIM_H
#define CUDA_SHIM_H

#include <stdbool.h>
#include <stddef.h>

typedef unsigned long long cu_memory;
typedef struct CUstream_st *cu_stream;

enum { CU_CAPTURE_GLOBAL = 0, CU_CAPTURE_THREAD_LOCAL = 1, CU_STREAM_NONBLOCKING = 1, CU_NOT_READY = 600 };

struct cuda_driver {
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
};

/* Valid after cu_load. */
extern struct cuda_driver cu;

/* Loads the driver.  Returns false, with a message, if there is none. */
bool cu_load(void);

/* Makes the device's context current on this thread. */
bool cu_use(int device);

#endif
