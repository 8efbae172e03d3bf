/* Tutti: the types that programs and plug-ins share.
 *
 * Plain data and a few inline functions, with no headers but the C library's, dtypes.h (dtypes and reduce ops) and
 * kinds.h (kinds of operation).  C11 and C++17.  All counts and sizes are 64-bit, and units are in the names (_ms, _ns,
 * bytes, numel). */
#ifndef TUTTI_TYPES_H
#define TUTTI_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/dtypes.h>
#include <tutti/kinds.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status ------------------------------------------------------------------------------------------------ */

/* The result of every function of type int: TUTTI_OK or a negative code.  The error message is tutti_last_error() for a
 * call that failed, and tutti_work_error() for an operation that failed later. */
typedef enum tutti_status {
    TUTTI_OK = 0,
    TUTTI_ERR_INVALID_ARGUMENT = -1, /* refused before anything was sent; the group stays usable */
    TUTTI_ERR_UNSUPPORTED = -2,      /* no backend of the group does this operation with this dtype */
    TUTTI_ERR_TIMEOUT = -3,          /* the timeout of the operation, the wait or the store passed */
    TUTTI_ERR_PEER_LOST = -4,        /* a rank died, left, or can no longer be reached */
    TUTTI_ERR_MISMATCH = -5,         /* the ranks' calls differ: operation, count, dtype, reduce op, root or size */
    TUTTI_ERR_ABORTED = -6,          /* the group failed earlier or was aborted; the message has the first cause */
    TUTTI_ERR_STORE = -7,            /* the key-value store cannot be reached or refused a request */
    TUTTI_ERR_AUTH = -8,             /* the job token is wrong or missing */
    TUTTI_ERR_NO_MEMORY = -9,
    TUTTI_ERR_SYSTEM = -10,   /* a system call failed; the message has the name of errno */
    TUTTI_ERR_BACKEND = -11,  /* a plug-in is missing, does not load, or its library failed */
    TUTTI_ERR_NOT_FOUND = -12 /* a key is not in the store, a rank is not in the group, this host has no address */
} tutti_status;

/* ---- devices and tensors ----------------------------------------------------------------------------------- */

/* DLPack's device types. */
typedef enum tutti_device_type { TUTTI_CPU = 1, TUTTI_CUDA = 2 } tutti_device_type;

/* Where a tensor's memory is. */
typedef struct tutti_device {
    int32_t type;  /* a tutti_device_type */
    int32_t index; /* 0 on CPU, the device's ordinal on CUDA */
} tutti_device;

/* Contiguous elements, borrowed: the library never frees data.  Passed by value.  data may be NULL if numel is 0, and
 * may be unaligned. */
typedef struct tutti_tensor {
    void *data;
    int64_t numel;
    tutti_dtype dtype;
    tutti_device device;
} tutti_tensor;

/* A byte string, for the store and the object collectives.  Each function says who frees data. */
typedef struct tutti_bytes {
    void *data;
    size_t bytes;
} tutti_bytes;

/* ---- operations -------------------------------------------------------------------------------------------- */

#define TUTTI_ANY_SOURCE (-1)
#define TUTTI_ANY_TAG (-1)

/* Timeouts, in milliseconds.  Any other negative value is an error. */
#define TUTTI_INFINITE INT64_MAX
#define TUTTI_NOW (-INT64_MAX) /* operation or wait: no time at all; for an operation 0 means the group's */
#define TUTTI_DEFAULT_TIMEOUT (INT64_MAX - 1) /* the default of the operation, the group or the store */

#ifdef __cplusplus
}
#endif
#endif
