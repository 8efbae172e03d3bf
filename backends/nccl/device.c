#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ncclb.h"

int ncclb_driver_failed(const struct ncclb_group *group, const char *what, CUresult result)
{
    int status = result == CUDA_ERROR_OUT_OF_MEMORY ? TUTTI_ERR_NO_MEMORY : TUTTI_ERR_BACKEND;
    return group->host->error(status, "nccl: %s on cuda:%d: %s (%s)", what, group->device, ncclb_driver_error(result),
                              ncclb_versions());
}

/* ---- the context ------------------------------------------------------------------------------------------- */

bool ncclb_enter(const struct ncclb_group *group)
{
    CUcontext current = NULL;
    if (ncclb_lib.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == group->context) return false;
    return ncclb_lib.cuCtxPushCurrent(group->context) == CUDA_SUCCESS;
}

void ncclb_leave(bool entered)
{
    CUcontext ours;
    if (entered) ncclb_lib.cuCtxPopCurrent(&ours);
}

CUstreamCaptureMode ncclb_relax(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    ncclb_lib.cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

void ncclb_unrelax(CUstreamCaptureMode mode)
{
    ncclb_lib.cuThreadExchangeStreamCaptureMode(&mode);
}

/* The rank's device where it named one, else the one of its place on the host. */
static int choose_device(struct ncclb_group *group)
{
    const tutti_group_info *info = &group->info;
    int count = 0;
    ncclb_lib.cuDeviceGetCount(&count);
    bool named = info->device.type == TUTTI_CUDA;
    group->device = named ? info->device.index : info->local_rank > 0 ? info->local_rank : 0;
    if (group->device >= 0 && group->device < count) return TUTTI_OK;
    return group->host->error(
        TUTTI_ERR_INVALID_ARGUMENT,
        "nccl: rank %d is to use cuda:%d%s, but this process sees %d GPU%s; name another by opts.device, "
        "LOCAL_RANK or CUDA_VISIBLE_DEVICES",
        info->rank, group->device, named ? "" : " (by LOCAL_RANK)", count, count == 1 ? "" : "s");
}

/* ---- two ranks on one GPU ---------------------------------------------------------------------------------- */

enum { CARD_MAX = 200 };

/* What tells a GPU from all others, and the host that NCCL will take this rank to be on. */
static void describe(const struct ncclb_group *group, char *card)
{
    CUuuid uuid = {{0}};
    char bus[32] = "", host[65] = "";
    ncclb_lib.cuDeviceGetUuid(&uuid, group->cu_device);
    ncclb_lib.cuDeviceGetPCIBusId(bus, sizeof bus, group->cu_device);
    const char *given = group->host->env("NCCL_HOSTID");
    if (given == NULL) gethostname(host, sizeof host - 1);
    int used = 0;
    for (size_t i = 0; i < sizeof uuid.bytes; i++)
        used += snprintf(card + used, CARD_MAX - (size_t)used, "%02x", (unsigned char)uuid.bytes[i]);
    snprintf(card + used, CARD_MAX - (size_t)used, " %s %.64s", bus, given != NULL ? given : host);
}

/* NCCL wants a GPU of its own for each rank of what it takes for one host.  Found here, before it is asked. */
static int check_alone(struct ncclb_group *group)
{
    const tutti_group_info *info = &group->info;
    const tutti_host *host = group->host;
    char key[32], mine[CARD_MAX], theirs[CARD_MAX];
    if (info->world_size == 1 || info->parent != NULL) return TUTTI_OK;
    describe(group, mine);
    snprintf(key, sizeof key, "nccl/gpu/%d", info->rank);
    int status = host->store_set(info->store, key, mine, strlen(mine));
    if (host->env("NCCL_MULTI_RANK_GPU_ENABLE") != NULL) return status; /* newer NCCLs can, when told */
    for (int peer = 0; status == TUTTI_OK && peer < info->world_size; peer++) {
        size_t bytes = 0;
        if (peer == info->rank) continue;
        snprintf(key, sizeof key, "nccl/gpu/%d", peer);
        status = host->store_get(info->store, key, theirs, sizeof theirs - 1, &bytes, info->timeout_ms);
        if (status != TUTTI_OK) return status;
        theirs[bytes < sizeof theirs ? bytes : sizeof theirs - 1] = '\0';
        if (strcmp(mine, theirs) == 0)
            return host->error(
                TUTTI_ERR_INVALID_ARGUMENT,
                "nccl: ranks %d and %d are both on one GPU (PCI %.16s); NCCL wants one a rank. Give each its "
                "own (LOCAL_RANK, opts.device or CUDA_VISIBLE_DEVICES), or set NCCL_HOSTID to another value on "
                "each rank: NCCL then takes them for two hosts and goes through the network",
                info->rank < peer ? info->rank : peer, info->rank < peer ? peer : info->rank, mine + 33);
    }
    return status;
}

/* ---- life -------------------------------------------------------------------------------------------------- */

/* Before Hopper NCCL moves 8-bit floats but does not add them. */
static bool reduces_fp8(const struct ncclb_group *group)
{
    int major = 0;
    ncclb_lib.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, group->cu_device);
    return major >= 9 && ncclb_lib.nccl_version >= 22400;
}

int ncclb_device_open(struct ncclb_group *group)
{
    int status = choose_device(group);
    if (status != TUTTI_OK) return status;
    CUresult result = ncclb_lib.cuDeviceGet(&group->cu_device, group->device);
    if (result != CUDA_SUCCESS) return ncclb_driver_failed(group, "finding the device", result);
    status = check_alone(group);
    if (status != TUTTI_OK) return status;
    result = ncclb_lib.cuDevicePrimaryCtxRetain(&group->context, group->cu_device);
    if (result != CUDA_SUCCESS) {
        group->context = NULL;
        return ncclb_driver_failed(group, "making a context", result);
    }
    group->fp8_reduces = reduces_fp8(group);
    return TUTTI_OK;
}

void ncclb_device_close(struct ncclb_group *group)
{
    if (group->context != NULL) ncclb_lib.cuDevicePrimaryCtxRelease(group->cu_device);
    group->context = NULL;
}

/* ---- checks of one operation ------------------------------------------------------------------------------- */

static int check_tensor(const struct ncclb_group *group, const tutti_tensor *tensor)
{
    int type = 0, ordinal = -1;
    CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *into[] = {&type, &ordinal};
    if (tensor->device.index != group->device)
        return group->host->error(TUTTI_ERR_INVALID_ARGUMENT,
                                  "nccl: the tensor says cuda:%d, but this rank's device in group %s is cuda:%d",
                                  tensor->device.index, group->info.name, group->device);
    if (tensor->numel == 0) return TUTTI_OK;
    ncclb_lib.cuPointerGetAttributes(2, what, into, (CUdeviceptr)tensor->data);
    if (type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
        return group->host->error(
            TUTTI_ERR_INVALID_ARGUMENT,
            "nccl: the tensor says cuda:%d, but %p is %s; set its device to TUTTI_CPU or allocate it on "
            "the GPU",
            group->device, tensor->data,
            type == CU_MEMORYTYPE_HOST ? "pinned host memory" : "memory that CUDA does not know");
    if (ordinal == group->device) return TUTTI_OK;
    return group->host->error(TUTTI_ERR_INVALID_ARGUMENT, "nccl: the tensor says cuda:%d, but %p is memory of cuda:%d",
                              group->device, tensor->data, ordinal);
}

static int check_stream(const struct ncclb_group *group, CUstream stream)
{
    CUcontext context = NULL;
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return TUTTI_OK;
    CUresult result = ncclb_lib.cuStreamGetCtx(stream, &context);
    if (result == CUDA_SUCCESS && context == group->context) return TUTTI_OK;
    if (result != CUDA_SUCCESS)
        return group->host->error(TUTTI_ERR_INVALID_ARGUMENT, "nccl: opts.stream (%p) is no stream: %s", (void *)stream,
                                  ncclb_driver_error(result));
    return group->host->error(
        TUTTI_ERR_INVALID_ARGUMENT,
        "nccl: opts.stream (%p) belongs to another device or context than cuda:%d's, on which this rank "
        "of group %s is",
        (void *)stream, group->device, group->info.name);
}

int ncclb_device_check(const struct ncclb_group *group, const tutti_op *op)
{
    int status = check_stream(group, op->stream);
    for (int i = 0; status == TUTTI_OK && i < op->n_in; i++) status = check_tensor(group, &op->in[i]);
    for (int i = 0; status == TUTTI_OK && i < op->n_out; i++)
        if (op->n_in != 1 || op->out[i].data != op->in[0].data) status = check_tensor(group, &op->out[i]);
    return status;
}
