/* Tutti: the bridge to DLPack's DLTensor (dlpack/dlpack.h; Debian: libdlpack-dev).
 *
 * Both directions copy a description, never data, and own nothing.  tutti_dtype and tutti_device use DLPack's numbers,
 * so a conversion is a shift and a check.  Header only: libtutti does not depend on DLPack. */
#ifndef TUTTI_DLPACK_H
#define TUTTI_DLPACK_H

#include <dlpack/dlpack.h>
#include <tutti/types.h>

/* A number of octal digits.  Since 1.0 there is none. */
#if defined DLPACK_VERSION && DLPACK_VERSION < 050
#error "<dlpack/dlpack.h> is older than DLPack 0.5, which Tutti needs"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the dtype of a DLPack type, or 0 if Tutti has none.  Types with several lanes have none. */
static inline tutti_dtype tutti_dtype_from_dlpack(DLDataType type)
{
    static const tutti_dtype known[] = {
#define TUTTI_KNOWN(dtype, class, name) TUTTI_##dtype,
        TUTTI_DTYPES(TUTTI_KNOWN)
#undef TUTTI_KNOWN
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (type.lanes == 1 && (int)known[i] == (type.code << 8 | type.bits)) return known[i];
    return (tutti_dtype)0;
}

/* True if the tensor is contiguous in row-major order.  strides == NULL means that (DLPack before 1.2).  Strides of
 * dimensions with one element do not matter, and an empty tensor is contiguous. */
static inline bool tutti_dlpack_is_contiguous(const DLTensor *from)
{
    int64_t expected = 1;
    if (from->strides == NULL) return true;
    for (int32_t i = 0; i < from->ndim; i++)
        if (from->shape[i] == 0) return true;
    for (int32_t i = from->ndim - 1; i >= 0; i--) {
        if (from->shape[i] != 1 && from->strides[i] != expected) return false;
        expected *= from->shape[i];
    }
    return true;
}

/* Describes from as a flat tensor over the same memory, which must outlive its use.  Pinned CUDA host memory counts as
 * CPU memory; managed memory and other devices are refused.  Errors: INVALID_ARGUMENT, with the error message in *why
 * (may be NULL): from or to is NULL, the tensor is not contiguous, its shape is negative or overflows, or Tutti has no
 * such dtype, lanes or device. */
static inline int tutti_from_dlpack(const DLTensor *from, tutti_tensor *to, const char **why)
{
    const char *unused;
    int64_t numel = 1;
    bool empty = false;
    if (why == NULL) why = &unused;
    *why = "";
    if (from == NULL || to == NULL) {
        *why = "from or to is NULL; pass two tensors";
        return TUTTI_ERR_INVALID_ARGUMENT;
    }
    tutti_dtype dtype = tutti_dtype_from_dlpack(from->dtype);
    if (dtype == (tutti_dtype)0) {
        *why = "Tutti has no dtype for the DLTensor's code, bits and lanes";
        return TUTTI_ERR_INVALID_ARGUMENT;
    }
    if (from->ndim < 0 || (from->ndim > 0 && from->shape == NULL)) {
        *why = "the DLTensor has no shape";
        return TUTTI_ERR_INVALID_ARGUMENT;
    }
    for (int32_t i = 0; i < from->ndim; i++) {
        if (from->shape[i] < 0) {
            *why = "the DLTensor's shape has a negative entry";
            return TUTTI_ERR_INVALID_ARGUMENT;
        }
        empty |= from->shape[i] == 0;
    }
    for (int32_t i = 0; i < from->ndim && !empty; i++) {
        if (numel > INT64_MAX / 16 / from->shape[i]) {
            *why = "the DLTensor's shape has more than 2^59 elements";
            return TUTTI_ERR_INVALID_ARGUMENT;
        }
        numel *= from->shape[i];
    }
    if (!tutti_dlpack_is_contiguous(from)) {
        *why = "the DLTensor is not contiguous in row-major order; copy it into a contiguous one first";
        return TUTTI_ERR_INVALID_ARGUMENT;
    }
    int device = (int)from->device.device_type;
    if (device == kDLCUDAHost) device = TUTTI_CPU;
    if (device != TUTTI_CPU && device != TUTTI_CUDA) {
        *why = "the DLTensor is on a device that is neither the CPU nor CUDA";
        return TUTTI_ERR_INVALID_ARGUMENT;
    }
    to->data = from->data == NULL ? NULL : (char *)from->data + from->byte_offset;
    to->numel = empty ? 0 : numel;
    to->dtype = dtype;
    to->device.type = device;
    to->device.index = device == TUTTI_CPU ? 0 : from->device.device_id;
    return TUTTI_OK;
}

/* Describes from as a DLTensor with one dimension.  extent provides its shape and stride, and must be valid as long as
 * *to is used.  Strides are set, as DLPack has required since 1.2. */
static inline void tutti_to_dlpack(tutti_tensor from, int64_t extent[2], DLTensor *to)
{
    extent[0] = from.numel;
    extent[1] = 1;
    to->data = from.data;
    to->device.device_type = (DLDeviceType)from.device.type;
    to->device.device_id = from.device.index;
    to->ndim = 1;
    to->dtype.code = (uint8_t)((int)from.dtype >> 8);
    to->dtype.bits = (uint8_t)((int)from.dtype & 0xff);
    to->dtype.lanes = 1;
    to->shape = &extent[0];
    to->strides = &extent[1];
    to->byte_offset = 0;
}

#ifdef __cplusplus
}
#endif
#endif
