#include "device.h"

int device_failed(const struct device *device, const char *doing, CUresult result)
{
    int status = result == CUDA_ERROR_OUT_OF_MEMORY ? TUTTI_ERR_NO_MEMORY : TUTTI_ERR_BACKEND;
    return device->host->error(status, "%s: %s on cuda:%d: %s%s%s%s", device->who, doing, device->index,
                               driver_error(result), device->what[0] != '\0' ? " (" : "", device->what,
                               device->what[0] != '\0' ? ")" : "");
}

/* ---- the context ------------------------------------------------------------------------------------------- */

bool device_enter(const struct device *device)
{
    CUcontext current = NULL;
    if (driver.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == device->context) return false;
    return driver.cuCtxPushCurrent(device->context) == CUDA_SUCCESS;
}

void device_leave(bool entered)
{
    CUcontext ours;
    if (entered) driver.cuCtxPopCurrent(&ours);
}

CUstreamCaptureMode device_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    driver.cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void device_unrelax(CUstreamCaptureMode mode)
{
    driver.cuThreadExchangeStreamCaptureMode(&mode);
}

enum device_capture device_capture(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (driver.cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS) return DEVICE_BARRED;
    return status != CU_STREAM_CAPTURE_STATUS_NONE ? DEVICE_CAPTURED : DEVICE_NO_CAPTURE;
}

/* ---- selection ------------------------------------------------------------------------------------------------- */

int device_choose(struct device *device, const tutti_group_info *info, const tutti_host *host, const char *who)
{
    int count = 0;
    bool explicit = info->device.type == TUTTI_CUDA;
    *device = (struct device){.host = host, .who = who, .what = ""};
    driver.cuDeviceGetCount(&count);
    device->index = explicit ? info->device.index : info->local_rank > 0 ? info->local_rank : 0;
    if (device->index < 0 || device->index >= count)
        return host->error(TUTTI_ERR_INVALID_ARGUMENT,
                           "%s: rank %d selects cuda:%d%s, but this process sees %d GPU%s; select another with "
                           "opts.device, LOCAL_RANK or CUDA_VISIBLE_DEVICES",
                           who, info->rank, device->index, explicit ? "" : " (by LOCAL_RANK)", count,
                           count == 1 ? "" : "s");
    CUresult result = driver.cuDeviceGet(&device->handle, device->index);
    return result == CUDA_SUCCESS ? TUTTI_OK : device_failed(device, "cannot look up the device", result);
}

int device_open(struct device *device)
{
    CUresult result = driver.cuDevicePrimaryCtxRetain(&device->context, device->handle);
    if (result == CUDA_SUCCESS) return TUTTI_OK;
    device->context = NULL;
    return device_failed(device, "cannot retain the primary context", result);
}

void device_close(struct device *device)
{
    if (device->context != NULL) driver.cuDevicePrimaryCtxRelease(device->handle);
    device->context = NULL;
}

/* ---- checks of one operation ------------------------------------------------------------------------------- */

static int check_tensor(const struct device *device, const tutti_tensor *tensor, const char *group)
{
    const tutti_host *host = device->host;
    int type = 0, ordinal = -1;
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *into[] = {&type, &ordinal};
    if (tensor->device.index != device->index)
        return host->error(TUTTI_ERR_INVALID_ARGUMENT,
                           "%s: the tensor is on cuda:%d, but this rank's device in group %s is cuda:%d", device->who,
                           tensor->device.index, group, device->index);
    if (tensor->numel == 0) return TUTTI_OK;
    driver.cuPointerGetAttributes(2, what, into, (CUdeviceptr)tensor->data);
    if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
        return host->error(TUTTI_ERR_INVALID_ARGUMENT,
                           "%s: the tensor is declared on cuda:%d, but %p is %s; set its device to TUTTI_CPU or "
                           "allocate it on the GPU",
                           device->who, device->index, tensor->data,
                           type == CU_MEMORYTYPE_HOST ? "pinned host memory" : "memory unknown to CUDA");
    if (ordinal == device->index) return TUTTI_OK;
    return host->error(TUTTI_ERR_INVALID_ARGUMENT, "%s: the tensor is declared on cuda:%d, but %p is memory of cuda:%d",
                       device->who, device->index, tensor->data, ordinal);
}

static int check_stream(const struct device *device, CUstream stream, const char *group)
{
    CUcontext context = NULL;
    if (stream == CU_STREAM_PER_THREAD) /* the progress thread would resolve it to a stream of its own */
        return device->host->error(
            TUTTI_ERR_INVALID_ARGUMENT,
            "%s: opts.stream is CU_STREAM_PER_THREAD, which names a different stream on each thread; create a stream",
            device->who);
    if (stream == NULL || stream == CU_STREAM_LEGACY) return TUTTI_OK;
    CUresult result = driver.cuStreamGetCtx(stream, &context);
    if (result == CUDA_SUCCESS && context == device->context) return TUTTI_OK;
    if (result != CUDA_SUCCESS)
        return device->host->error(TUTTI_ERR_INVALID_ARGUMENT, "%s: opts.stream (%p) is not a valid stream: %s",
                                   device->who, (void *)stream, driver_error(result));
    return device->host->error(
        TUTTI_ERR_INVALID_ARGUMENT,
        "%s: opts.stream (%p) does not belong to cuda:%d's primary context, which this rank uses in group %s",
        device->who, (void *)stream, device->index, group);
}

int device_check(const struct device *device, const tutti_op *op, CUstream stream, const char *group)
{
    int status = check_stream(device, stream, group);
    for (int i = 0; status == TUTTI_OK && i < op->n_in; i++) status = check_tensor(device, &op->in[i], group);
    for (int i = 0; status == TUTTI_OK && i < op->n_out; i++)
        if (op->n_in != 1 || op->out[i].data != op->in[0].data) status = check_tensor(device, &op->out[i], group);
    return status;
}
