/* Saves a checkpoint: rank 0 makes its folder, all ranks write their files, and rank 0 completes it.  After each step
 * the ranks agree that it succeeded on all of them. */
#include <inttypes.h>
#include <sodium.h>

#include "agree.h"
#include "checkpoint_file.h"
#include "checkpoint_states.h"

enum { KEEP = 2 };

static int agree(const struct checkpoint_call *call, int status)
{
    return agree_on_status(call->sharded->opts.group, call->sharded->opts.timeout_ms, status);
}

/* Rank 0: makes the folder of a new checkpoint and chooses its number.  The caller unlocks the folder. */
static int begin(struct checkpoint_call *call, struct checkpoint_manifest *manifest, int *lock)
{
    int64_t latest = 0;
    int status = checkpoint_folder_lock(call->folder, lock);
    if (status == TUTTI_OK) status = checkpoint_find_latest(call->folder, &latest);
    if (status == TUTTI_OK && latest == INT64_MAX)
        status = tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "checkpoint_save: no number follows %" PRId64, latest);
    if (status != TUTTI_OK) return status;
    manifest->number = latest + 1;
    randombytes_buf(manifest->id, sizeof manifest->id);
    return checkpoint_folder_begin(call->folder, manifest->number);
}

/* Tells all ranks number and id. */
static int spread_number(const struct checkpoint_call *call, struct checkpoint_manifest *manifest)
{
    struct {
        int64_t number;
        uint8_t id[CHECKPOINT_ID];
    } chosen = {.number = manifest->number};
    tutti_opts opts = shard_opts(call->sharded, NULL);
    memcpy(chosen.id, manifest->id, sizeof chosen.id);
    int status = tutti_broadcast(tutti_tensor_of(&chosen, sizeof chosen, TUTTI_UINT8), 0, &opts);
    manifest->number = chosen.number;
    memcpy(manifest->id, chosen.id, sizeof chosen.id);
    return status;
}

static int write_own(const struct checkpoint_call *call, const struct checkpoint_place *place,
                     struct checkpoint_manifest *manifest)
{
    int rank = call->sharded->rank;
    const void **data = calloc((size_t)call->n, sizeof *data);
    if (data == NULL) return tutti_set_error(TUTTI_ERR_NO_MEMORY, "checkpoint_save: no memory for %d states", call->n);
    for (int i = 0; i < call->n; i++) data[i] = call->state[i].tensor.data;
    int status = checkpoint_write_shard(place, manifest, rank, data, manifest->shard[rank].hash);
    free(data);
    return status;
}

/* Gathers the hashes of the ranks' files on rank 0. */
static int gather_hashes(const struct checkpoint_call *call, struct checkpoint_manifest *manifest, uint8_t *hashes)
{
    int rank = call->sharded->rank, size = call->sharded->size;
    tutti_opts opts = shard_opts(call->sharded, NULL);
    tutti_tensor all = tutti_tensor_of(hashes, rank == 0 ? (int64_t)size * CHECKPOINT_HASH : 0, TUTTI_UINT8);
    tutti_tensor own = tutti_tensor_of(manifest->shard[rank].hash, CHECKPOINT_HASH, TUTTI_UINT8);
    int status = tutti_gather_into_tensor(all, own, 0, &opts);
    for (int i = 0; i < size && rank == 0 && status == TUTTI_OK; i++)
        memcpy(manifest->shard[i].hash, hashes + (size_t)i * CHECKPOINT_HASH, CHECKPOINT_HASH);
    return status;
}

/* Checks that a load will accept the manifest, before it replaces older checkpoints. */
static int check_readable(const uint8_t *bytes, size_t n)
{
    struct checkpoint_manifest again;
    size_t at;
    const char *wrong = checkpoint_parse(bytes, n, &again, &at);
    checkpoint_manifest_free(&again);
    if (wrong == NULL) return TUTTI_OK;
    return tutti_set_error(TUTTI_ERR_SYSTEM, "checkpoint_save: the new manifest would not be usable at byte %zu: %s",
                           at, wrong);
}

/* Rank 0: writes the manifest, and gives the checkpoint its name. */
static int complete(const struct checkpoint_call *call, const struct checkpoint_place *place,
                    const struct checkpoint_manifest *manifest)
{
    uint8_t *bytes = NULL;
    size_t n;
    if (!checkpoint_encode(manifest, &bytes, &n))
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "checkpoint_save: no memory for the manifest");
    int status = check_readable(bytes, n);
    if (status == TUTTI_OK) status = checkpoint_write_manifest(place, bytes, n);
    free(bytes);
    return status == TUTTI_OK ? checkpoint_folder_commit(call->folder, manifest->number) : status;
}

/* Fills the new folder. */
static int write_files(const struct checkpoint_call *call, struct checkpoint_manifest *manifest)
{
    bool is_root = call->sharded->rank == 0;
    struct checkpoint_place place = {call->folder, manifest->number, true};
    uint8_t *hashes = is_root ? calloc((size_t)call->sharded->size, CHECKPOINT_HASH) : NULL;
    int status = TUTTI_OK;
    if (is_root && hashes == NULL)
        status = tutti_set_error(TUTTI_ERR_NO_MEMORY, "checkpoint_save: no memory for %d ranks", call->sharded->size);
    if (status == TUTTI_OK) status = write_own(call, &place, manifest);
    status = agree(call, status);
    if (status == TUTTI_OK) status = gather_hashes(call, manifest, hashes);
    if (status == TUTTI_OK) status = agree(call, is_root ? complete(call, &place, manifest) : TUTTI_OK);
    free(hashes);
    return status;
}

static int save(struct checkpoint_call *call, struct checkpoint_manifest *manifest)
{
    bool is_root = call->sharded->rank == 0;
    int lock = -1, status = TUTTI_OK, keep = call->opts.keep == 0 ? KEEP : call->opts.keep;
    if (!checkpoint_describe(call, manifest))
        status = tutti_set_error(TUTTI_ERR_NO_MEMORY, "checkpoint_save: no memory for the manifest");
    if (status == TUTTI_OK && is_root) status = begin(call, manifest, &lock);
    bool begun = is_root && status == TUTTI_OK;
    status = agree(call, status);
    if (status == TUTTI_OK) status = spread_number(call, manifest);
    if (status == TUTTI_OK) status = write_files(call, manifest);
    if (status != TUTTI_OK && begun) checkpoint_folder_discard(call->folder, manifest->number);
    if (status == TUTTI_OK && is_root && keep > 0) checkpoint_remove_old(call->folder, keep);
    checkpoint_folder_unlock(lock);
    if (status == TUTTI_OK && call->opts.used != NULL) *call->opts.used = manifest->number;
    if (status == TUTTI_OK && is_root)
        tutti_log("train", TUTTI_LOG_INFO, "checkpoint %" PRId64 " of %.300s is saved", manifest->number, call->folder);
    return status;
}

int tutti_checkpoint_save_sized(tutti_sharded *sharded, const char *folder, const tutti_checkpoint_state *states,
                                size_t state_bytes, int n_states, const tutti_checkpoint_opts *opts, size_t opts_bytes)
{
    struct checkpoint_call call = {.sharded = sharded, .folder = folder};
    struct checkpoint_manifest manifest = {0};
    if (sharded == NULL) return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "checkpoint_save: sharded is NULL");
    int status = tutti_sized_read("tutti_checkpoint_opts", opts, opts_bytes, &call.opts, sizeof call.opts);
    if (status != TUTTI_OK) return status;
    if (sodium_init() < 0) return tutti_set_error(TUTTI_ERR_SYSTEM, "checkpoint_save: libsodium does not start");
    status = checkpoint_call_read(&call, "checkpoint_save", states, state_bytes, n_states);
    if (status == TUTTI_OK) status = save(&call, &manifest);
    checkpoint_manifest_free(&manifest);
    checkpoint_call_free(&call);
    return status;
}
