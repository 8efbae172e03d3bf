/* include/tutti/dlpack.h, on descriptions of any shape, compared with a second computation in 128 bits. */
#include <tutti/dlpack.h>

#include "fuzz.h"
#include "targets.h"

enum { FUZZ_DIMENSIONS = 6 };

static bool is_one_run(const DLTensor *from)
{
    __int128 next = 1;
    for (int i = 0; i < from->ndim; i++)
        if (from->shape[i] == 0) return true;
    for (int i = from->ndim; i-- > 0 && from->strides != NULL; next *= from->shape[i])
        if (from->shape[i] != 1 && from->strides[i] != next) return false;
    return true;
}

static int64_t elements(const DLTensor *from)
{
    __int128 n = 1;
    bool empty = false;
    for (int i = 0; i < from->ndim; i++) {
        if (from->shape[i] < 0) return -1;
        empty |= from->shape[i] == 0;
        if (n <= INT64_MAX) n *= from->shape[i] > 0 ? from->shape[i] : 1;
    }
    return empty ? 0 : n <= INT64_MAX / 16 ? (int64_t)n : -1;
}

void fuzz_dlpack(const uint8_t *in, size_t bytes)
{
    static char memory[256];
    struct fuzz_bytes from = {in, in + bytes};
    int64_t shape[FUZZ_DIMENSIONS], strides[FUZZ_DIMENSIONS], extent[2];
    int flags = (int)fuzz_take(&from, 1), width = flags & 4 ? 8 : 1;
    DLTensor tensor = {.data = flags & 1 ? memory : NULL, .strides = flags & 2 ? strides : NULL, .shape = shape};
    tensor.device.device_type = (DLDeviceType)(fuzz_take(&from, 1) & 31);
    tensor.device.device_id = (int32_t)fuzz_take(&from, 1);
    tensor.dtype.code = (uint8_t)fuzz_take(&from, 1);
    tensor.dtype.bits = (uint8_t)fuzz_take(&from, 1);
    tensor.dtype.lanes = (uint16_t)(1 + (flags >> 3 & 1));
    tensor.byte_offset = fuzz_take(&from, 1);
    tensor.ndim = (int32_t)(fuzz_take(&from, 1) % (FUZZ_DIMENSIONS + 2)) - 1;
    for (int i = 0; i < FUZZ_DIMENSIONS; i++) shape[i] = (int64_t)fuzz_take(&from, width);
    for (int i = 0; i < FUZZ_DIMENSIONS; i++) strides[i] = (int64_t)fuzz_take(&from, width);
    tutti_tensor to, again;
    const char *why = NULL;
    if (tutti_from_dlpack(&tensor, &to, &why) != TUTTI_OK) {
        FUZZ_CHECK(why != NULL && why[0] != '\0');
        FUZZ_CHECK(tensor.ndim < 0 || tensor.dtype.lanes != 1 || elements(&tensor) < 0 || !is_one_run(&tensor) ||
                   tutti_dtype_from_dlpack(tensor.dtype) == (tutti_dtype)0 || tensor.device.device_type < kDLCPU ||
                   tensor.device.device_type > kDLCUDAHost);
        return;
    }
    FUZZ_CHECK(to.numel == elements(&tensor) && is_one_run(&tensor) && tensor.dtype.lanes == 1);
    FUZZ_CHECK(tutti_dtype_bytes(to.dtype) * 8 == tensor.dtype.bits);
    FUZZ_CHECK(to.data == (tensor.data != NULL ? memory + tensor.byte_offset : NULL));
    tutti_to_dlpack(to, extent, &tensor);
    FUZZ_CHECK(tutti_from_dlpack(&tensor, &again, NULL) == TUTTI_OK);
    FUZZ_CHECK(again.data == to.data && again.numel == to.numel && again.dtype == to.dtype);
    FUZZ_CHECK(again.device.type == to.device.type && again.device.index == to.device.index);
}
