/* Loads a checkpoint: rank 0 reads the manifest and sends it to all ranks, each reads the elements of its shard from
 * the files that have them, and only when all have succeeded do they replace their states. */
#include <inttypes.h>
#include <sodium.h>

#include "agree.h"
#include "checkpoint_file.h"
#include "checkpoint_states.h"

/* A load under way. */
struct load {
    const struct checkpoint_call *call;
    struct checkpoint_place place;
    struct checkpoint_manifest manifest; /* of the checkpoint */
    struct checkpoint_manifest own;      /* as this program would save */
    tutti_bytes bytes;                   /* of the manifest */
    int *entry;                          /* by state: its entry in the manifest */
    void **data;                         /* by state: what was read; NULL: replicated */
};

static int agree(const struct load *load, int status)
{
    const struct tutti_sharded *sharded = load->call->sharded;
    return agree_on_status(sharded->opts.group, sharded->opts.timeout_ms, status);
}

/* ---- manifest ---------------------------------------------------------------------------------------------- */

/* Rank 0: finds the checkpoint and reads its manifest. */
static int find(struct load *load, int64_t number)
{
    uint8_t *bytes;
    int64_t latest;
    const char *folder = load->call->folder;
    int status = checkpoint_find_latest(folder, &latest);
    if (status != TUTTI_OK) return status;
    if (latest == 0)
        return tutti_set_error(TUTTI_ERR_NOT_FOUND, "checkpoint_load: %s has no complete checkpoint", folder);
    load->place.number = number > 0 ? number : latest;
    if (!checkpoint_exists(&load->place))
        return tutti_set_error(TUTTI_ERR_NOT_FOUND,
                               "checkpoint_load: %s has no checkpoint %" PRId64 "; the latest is %" PRId64, folder,
                               load->place.number, latest);
    status = checkpoint_read_manifest(&load->place, &bytes, &load->bytes.bytes);
    load->bytes.data = bytes;
    return status;
}

/* Sends the manifest from rank 0 to all ranks.  Each rank parses it. */
static int spread_manifest(struct load *load)
{
    size_t at = 0;
    struct tutti_sharded *sharded = load->call->sharded;
    tutti_opts opts = shard_opts(sharded, NULL);
    int status = tutti_broadcast(tutti_view(&load->place.number, 1), 0, &opts);
    if (status == TUTTI_OK) status = tutti_broadcast_bytes(&load->bytes, 0, &opts);
    if (status != TUTTI_OK) return status;
    const char *wrong = checkpoint_parse(load->bytes.data, load->bytes.bytes, &load->manifest, &at);
    if (wrong == NULL && load->manifest.number != load->place.number)
        wrong = "it is the manifest of another checkpoint";
    return agree(load, wrong != NULL ? checkpoint_bad_manifest(&load->place, at, wrong) : TUTTI_OK);
}

/* ---- comparing --------------------------------------------------------------------------------------------- */

static int other_parameter(int i, const struct checkpoint_parameter *theirs, const struct checkpoint_parameter *ours)
{
    char text[2][160];
    const struct checkpoint_parameter *both[] = {theirs, ours};
    for (int k = 0; k < 2; k++)
        if (both[k] == NULL)
            snprintf(text[k], sizeof text[k], "none");
        else
            snprintf(text[k], sizeof text[k], "\"%.80s\" of %" PRId64 " %s", both[k]->name, both[k]->numel,
                     tutti_dtype_name(both[k]->dtype));
    return tutti_set_error(TUTTI_ERR_MISMATCH,
                           "checkpoint_load: the checkpoint is of another model: its parameter %d is %s, but that of "
                           "this program is %s",
                           i, text[0], text[1]);
}

static int compare_parameters(const struct checkpoint_manifest *theirs, const struct checkpoint_manifest *ours)
{
    for (int i = 0; i < theirs->n_parameters || i < ours->n_parameters; i++) {
        const struct checkpoint_parameter *a = i < theirs->n_parameters ? &theirs->parameter[i] : NULL;
        const struct checkpoint_parameter *b = i < ours->n_parameters ? &ours->parameter[i] : NULL;
        if (a == NULL || b == NULL || strcmp(a->name, b->name) != 0 || a->numel != b->numel || a->dtype != b->dtype)
            return other_parameter(i, a, b);
    }
    return TUTTI_OK;
}

/* Finds the entry of a state. */
static int find_entry(struct load *load, int state)
{
    const struct checkpoint_entry *ours = &load->own.entry[state];
    for (int i = 0; i < load->manifest.n_entries; i++) {
        const struct checkpoint_entry *theirs = &load->manifest.entry[i];
        if (strcmp(theirs->name, ours->name) != 0) continue;
        load->entry[state] = i;
        if (theirs->dtype == ours->dtype && theirs->replicated == ours->replicated && theirs->numel == ours->numel)
            return TUTTI_OK;
        return tutti_set_error(TUTTI_ERR_MISMATCH,
                               "checkpoint_load: state \"%s\" has %" PRId64 " elements of %s%s in the checkpoint, but "
                               "%" PRId64 " of %s%s in this program",
                               ours->name, theirs->numel, tutti_dtype_name(theirs->dtype),
                               theirs->replicated ? ", replicated," : "", ours->numel, tutti_dtype_name(ours->dtype),
                               ours->replicated ? ", replicated" : "");
    }
    return tutti_set_error(TUTTI_ERR_MISMATCH, "checkpoint_load: the checkpoint has no state \"%s\"", ours->name);
}

/* ---- reading ----------------------------------------------------------------------------------------------- */

/* Reads the part of one of this rank's ranges that a range of the file has.  `at` are the ranges' first elements in the
 * shard and in the file. */
static int read_overlap(struct load *load, struct checkpoint_file *file, struct checkpoint_range own, int64_t own_at,
                        struct checkpoint_range theirs, int64_t theirs_at)
{
    int64_t begin = own.begin > theirs.begin ? own.begin : theirs.begin;
    int64_t own_end = own.begin + own.numel, end = theirs.begin + theirs.numel;
    if (end > own_end) end = own_end;
    int status = TUTTI_OK;
    for (int i = 0; i < load->call->n && begin < end && status == TUTTI_OK; i++) {
        if (load->data[i] == NULL) continue;
        int64_t element = tutti_dtype_bytes(load->call->state[i].tensor.dtype);
        char *to = (char *)load->data[i] + (own_at + begin - own.begin) * element;
        int64_t from = theirs_at + begin - theirs.begin;
        status = checkpoint_read_elements(file, load->entry[i], from, end - begin, to);
    }
    return status;
}

static bool overlaps(const struct checkpoint_shard *a, const struct checkpoint_shard *b)
{
    for (int i = 0; i < a->n_ranges; i++)
        for (int k = 0; k < b->n_ranges; k++)
            if (a->range[i].begin < b->range[k].begin + b->range[k].numel &&
                b->range[k].begin < a->range[i].begin + a->range[i].numel)
                return true;
    return false;
}

/* Reads what a file has of this rank's shard. */
static int read_file(struct load *load, int shard)
{
    struct checkpoint_file file;
    const struct checkpoint_shard *own = &load->own.shard[load->call->sharded->rank];
    const struct checkpoint_shard *theirs = &load->manifest.shard[shard];
    if (!overlaps(own, theirs)) return TUTTI_OK;
    int status = checkpoint_open_shard(&load->place, &load->manifest, shard, &file);
    if (status != TUTTI_OK) return status;
    int64_t own_at = 0;
    for (int i = 0; i < own->n_ranges && status == TUTTI_OK; own_at += own->range[i++].numel) {
        int64_t theirs_at = 0;
        for (int k = 0; k < theirs->n_ranges && status == TUTTI_OK; theirs_at += theirs->range[k++].numel)
            status = read_overlap(load, &file, own->range[i], own_at, theirs->range[k], theirs_at);
    }
    checkpoint_close_shard(&file);
    return status;
}

/* Allocates the memory for what is read, and reads it. */
static int read_own(struct load *load)
{
    int status = compare_parameters(&load->manifest, &load->own);
    for (int i = 0; i < load->call->n && status == TUTTI_OK; i++) {
        tutti_tensor tensor = load->call->state[i].tensor;
        status = find_entry(load, i);
        if (status != TUTTI_OK || load->call->state[i].replicated) continue;
        size_t bytes = (size_t)(tensor.numel * tutti_dtype_bytes(tensor.dtype));
        load->data[i] = malloc(bytes + 1);
        if (load->data[i] == NULL)
            status = tutti_set_error(TUTTI_ERR_NO_MEMORY, "checkpoint_load: no memory for state \"%s\" of %zu bytes",
                                     load->call->state[i].name, bytes);
    }
    for (int i = 0; i < load->manifest.n_shards && status == TUTTI_OK; i++) status = read_file(load, i);
    return status;
}

/* Replaces the states. */
static void replace(const struct load *load)
{
    for (int i = 0; i < load->call->n; i++) {
        tutti_tensor tensor = load->call->state[i].tensor;
        const void *from = load->data[i] != NULL ? load->data[i] : load->manifest.entry[load->entry[i]].data;
        if (tensor.numel > 0) memcpy(tensor.data, from, (size_t)(tensor.numel * tutti_dtype_bytes(tensor.dtype)));
    }
}

/* ---- the call ---------------------------------------------------------------------------------------------- */

static int prepare(struct load *load)
{
    load->entry = calloc((size_t)load->call->n, sizeof *load->entry);
    load->data = calloc((size_t)load->call->n, sizeof *load->data);
    if (load->entry == NULL || load->data == NULL || !checkpoint_describe(load->call, &load->own))
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "checkpoint_load: no memory for a list of states");
    if (load->call->sharded->n_reported > 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "checkpoint_load: %d gradients were reported since the last tutti_sharded_wait; call "
                               "that first",
                               load->call->sharded->n_reported);
    return load->call->sharded->rank == 0 ? find(load, load->call->opts.number) : TUTTI_OK;
}

static int run(struct load *load)
{
    struct tutti_sharded *sharded = load->call->sharded;
    int status = agree(load, prepare(load));
    if (status == TUTTI_OK) status = spread_manifest(load);
    if (status == TUTTI_OK) status = agree(load, read_own(load));
    if (status != TUTTI_OK) return status;
    replace(load);
    if (load->call->opts.used != NULL) *load->call->opts.used = load->place.number;
    status = tutti_sharded_update(sharded);
    return status == TUTTI_OK ? tutti_sharded_wait_values(sharded) : status;
}

static void load_free(struct load *load)
{
    for (int i = 0; i < load->call->n && load->data != NULL; i++) free(load->data[i]);
    free(load->data);
    free(load->entry);
    checkpoint_manifest_free(&load->manifest);
    checkpoint_manifest_free(&load->own);
    if (load->call->sharded->rank == 0)
        free(load->bytes.data);
    else
        tutti_bytes_free(&load->bytes, 1);
}

int tutti_checkpoint_load_sized(tutti_sharded *sharded, const char *folder, const tutti_checkpoint_state *states,
                                size_t state_bytes, int n_states, const tutti_checkpoint_opts *opts, size_t opts_bytes)
{
    struct checkpoint_call call = {.sharded = sharded, .folder = folder};
    if (sharded == NULL) return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "checkpoint_load: sharded is NULL");
    int status = tutti_sized_read("tutti_checkpoint_opts", opts, opts_bytes, &call.opts, sizeof call.opts);
    if (status != TUTTI_OK) return status;
    if (sodium_init() < 0) return tutti_set_error(TUTTI_ERR_SYSTEM, "checkpoint_load: libsodium does not start");
    status = checkpoint_call_read(&call, "checkpoint_load", states, state_bytes, n_states);
    if (status == TUTTI_OK) {
        struct load load = {.call = &call, .place = {.folder = folder}};
        status = run(&load);
        if (status == TUTTI_OK && sharded->rank == 0)
            tutti_log("train", TUTTI_LOG_INFO, "checkpoint %" PRId64 " of %.300s is loaded", load.manifest.number,
                      folder);
        load_free(&load);
    }
    checkpoint_call_free(&call);
    return status;
}
