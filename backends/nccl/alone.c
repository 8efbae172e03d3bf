/* The GPU is this rank's alone, or NCCL would hang or say something less clear. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ncclb.h"

enum { CARD_MAX = 200 };

/* What tells a GPU from all others, and the host that NCCL will take this rank to be on. */
static void describe(const struct ncclb_group *group, char *card)
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

/* From 2.30 on NCCL can when it is told to. */
static bool may_share(const tutti_host *host)
{
    const char *told = host->env("NCCL_MULTI_RANK_GPU_ENABLE");
    return told != NULL && strcmp(told, "0") != 0 && ncclb_lib.version >= 23000;
}

/* NCCL wants a GPU of its own for each rank of what it takes for one host.  Found here, before it is asked. */
int ncclb_check_alone(struct ncclb_group *group)
{
    const tutti_group_info *info = &group->info;
    const tutti_host *host = group->host;
    char key[32], mine[CARD_MAX], theirs[CARD_MAX];
    if (info->world_size == 1 || info->parent != NULL) return TUTTI_OK;
    describe(group, mine);
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
                "nccl: ranks %d and %d are both on one GPU (PCI %.16s); NCCL wants one a rank. Give each its "
                "own (LOCAL_RANK, opts.device or CUDA_VISIBLE_DEVICES), or set NCCL_HOSTID to another value on "
                "each rank: NCCL then takes them for two hosts and goes through the network",
                info->rank < peer ? info->rank : peer, info->rank < peer ? peer : info->rank, mine + 33);
    }
    return status;
}
