/* Checks that no other rank uses this GPU.  Otherwise NCCL would hang or report a less clear error. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ncclb.h"

enum { CARD_MAX = 200 };

/* Identifies the GPU, and the host NCCL will assign this rank to. */
static void identify_gpu(const struct ncclb_group *group, char *card)
{
    CUuuid uuid = {{0}};
    char bus[32] = "", host[65] = "";
    driver.cuDeviceGetUuid(&uuid, group->device.handle);
    driver.cuDeviceGetPCIBusId(bus, sizeof bus, group->device.handle);
    const char *given = group->host->env("NCCL_HOSTID");
    if (given == NULL) gethostname(host, sizeof host - 1);
    int used = 0;
    for (size_t i = 0; i < sizeof uuid.bytes; i++)
        used += snprintf(card + used, CARD_MAX - (size_t)used, "%02x", (unsigned char)uuid.bytes[i]);
    snprintf(card + used, CARD_MAX - (size_t)used, " %s %.64s", bus, given != NULL ? given : host);
}

/* True if ranks may share a GPU, which NCCL supports since 2.30 if enabled. */
static bool may_share(const tutti_host *host)
{
    const char *enabled = host->env("NCCL_MULTI_RANK_GPU_ENABLE");
    return enabled != NULL && strcmp(enabled, "0") != 0 && ncclb_lib.version >= 23000;
}

/* Checks, before NCCL is called, that each rank has its own GPU.  NCCL requires that on what it considers one host. */
int ncclb_check_alone(struct ncclb_group *group)
{
    const tutti_group_info *info = &group->info;
    const tutti_host *host = group->host;
    char key[32], mine[CARD_MAX], theirs[CARD_MAX];
    if (info->world_size == 1 || info->parent != NULL) return TUTTI_OK;
    identify_gpu(group, mine);
    snprintf(key, sizeof key, "nccl/gpu/%d", info->rank);
    int status = host->store_set(info->store, key, mine, strlen(mine));
    if (may_share(host)) return status;
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
                "nccl: ranks %d and %d both use one GPU (PCI %.16s), but NCCL needs one per rank; give each rank its "
                "own (LOCAL_RANK, opts.device or CUDA_VISIBLE_DEVICES), or set NCCL_HOSTID to a different value on "
                "each rank, so that NCCL treats them as two hosts and uses the network",
                info->rank < peer ? info->rank : peer, info->rank < peer ? peer : info->rank, mine + 33);
    }
    return status;
}
