#include "checkpoint_states.h"

#include <inttypes.h>

#include "agree.h"

/* ---- arguments --------------------------------------------------------------------------------------------- */

static int check_name(const struct checkpoint_call *call, const char *who, int i)
{
    const char *name = call->state[i].name;
    if (name == NULL || name[0] == '\0' || strlen(name) >= CHECKPOINT_NAME || strchr(name, '\n') != NULL)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s: state %d has no name, or one that is too long or has line breaks", who, i - 1);
    for (int k = 0; k < i; k++)
        if (strcmp(call->state[k].name, name) == 0)
            return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "%s: state %d is named \"%s\", which %s is named, too",
                                   who, i - 1, name, k == 0 ? "the shard's value" : "an earlier one");
    return TUTTI_OK;
}

/* The format bounds names. */
static int check_parameters(const struct tutti_sharded *sharded, const char *who)
{
    for (int i = 0; i < sharded->n; i++) {
        size_t length = strlen(sharded->parameter[i].name);
        if (length >= CHECKPOINT_NAME)
            return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                                   "%s: the name of parameter %d has %zu bytes; give it at most %d", who, i, length,
                                   CHECKPOINT_NAME - 1);
    }
    return TUTTI_OK;
}

static int check_state(const struct checkpoint_call *call, const char *who, int i)
{
    const tutti_checkpoint_state *state = &call->state[i];
    tutti_tensor tensor = state->tensor;
    int status = check_name(call, who, i);
    if (status != TUTTI_OK) return status;
    if (strcmp(tutti_dtype_name(tensor.dtype), "?") == 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "%s: state \"%s\" has the unknown dtype 0x%x", who,
                               state->name, (unsigned)tensor.dtype);
    if (tensor.device.type != TUTTI_CPU || tensor.numel < 0 || tensor.numel > INT64_MAX / 64 ||
        (tensor.numel > 0 && tensor.data == NULL))
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s: state \"%s\" has %" PRId64 " elements at %p on device type %d; pass memory of the "
                               "CPU with 0 to 2^57 elements",
                               who, state->name, tensor.numel, tensor.data, tensor.device.type);
    if (!state->replicated && tensor.numel != call->sharded->shard_numel)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s: state \"%s\" has %" PRId64 " elements, but the shard %" PRId64
                               "; pass one for each, or set replicated",
                               who, state->name, tensor.numel, call->sharded->shard_numel);
    return TUTTI_OK;
}

static int read_states(struct checkpoint_call *call, const char *who, const tutti_checkpoint_state *states,
                       size_t state_bytes, int n_states)
{
    if (call->folder == NULL || call->folder[0] == '\0' || n_states < 0 || (n_states > 0 && states == NULL))
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "%s: folder is \"%s\" and states is %p with %d entries", who,
                               call->folder != NULL ? call->folder : "NULL", (const void *)states, n_states);
    if (call->opts.keep < -1 || call->opts.number < 0)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "%s: keep is %d and number %" PRId64 "; pass -1 or more, and 0 or more", who,
                               call->opts.keep, call->opts.number);
    call->state = calloc((size_t)n_states + 1, sizeof *call->state);
    if (call->state == NULL)
        return tutti_set_error(TUTTI_ERR_NO_MEMORY, "%s: no memory for a list of %d states", who, n_states);
    call->state[0] = (tutti_checkpoint_state){.name = "value", .tensor = tutti_sharded_value(call->sharded)};
    int status = check_parameters(call->sharded, who);
    for (call->n = 1; call->n <= n_states && status == TUTTI_OK; call->n++) {
        const char *given = (const char *)states + (size_t)(call->n - 1) * state_bytes;
        tutti_checkpoint_state *state = &call->state[call->n];
        status = tutti_sized_read("tutti_checkpoint_state", given, state_bytes, state, sizeof *state);
        if (status == TUTTI_OK) status = check_state(call, who, call->n);
    }
    return status;
}

/* Writes a line for each state.  The caller frees it.  Returns NULL without memory. */
static char *describe(const struct checkpoint_call *call)
{
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL) return NULL;
    fprintf(file, "number %" PRId64 ", keep %d\n", call->opts.number, call->opts.keep);
    for (int i = 1; i < call->n; i++) {
        const tutti_checkpoint_state *state = &call->state[i];
        fprintf(file, "state \"%s\" of %s", state->name, tutti_dtype_name(state->tensor.dtype));
        if (state->replicated) fprintf(file, ", replicated, with %" PRId64 " elements", state->tensor.numel);
        fputc('\n', file);
    }
    if (fclose(file) == 0) return text;
    free(text);
    return NULL;
}

int checkpoint_call_read(struct checkpoint_call *call, const char *who, const tutti_checkpoint_state *states,
                         size_t state_bytes, int n_states)
{
    struct tutti_sharded *sharded = call->sharded;
    int status = read_states(call, who, states, state_bytes, n_states);
    char *text = status == TUTTI_OK ? describe(call) : NULL;
    if (status == TUTTI_OK && text == NULL)
        status = tutti_set_error(TUTTI_ERR_NO_MEMORY, "%s: no memory for a list of %d states", who, n_states);
    status = agree_on_text(sharded->opts.group, sharded->opts.timeout_ms, who, status, text);
    free(text);
    return status;
}

void checkpoint_call_free(struct checkpoint_call *call)
{
    free(call->state);
    call->state = NULL;
}

/* ---- manifest ---------------------------------------------------------------------------------------------- */

static bool describe_parameters(const struct tutti_sharded *sharded, struct checkpoint_manifest *manifest)
{
    manifest->parameter = calloc((size_t)sharded->n, sizeof *manifest->parameter);
    if (manifest->parameter == NULL) return false;
    for (int i = 0; i < sharded->n; i++) {
        const struct shard_parameter *parameter = &sharded->parameter[i];
        manifest->parameter[i] = (struct checkpoint_parameter){
            .name = strdup(parameter->name), .numel = parameter->value.numel, .dtype = parameter->value.dtype};
        manifest->n_parameters = i + 1;
        if (manifest->parameter[i].name == NULL) return false;
    }
    return true;
}

static bool describe_states(const struct checkpoint_call *call, struct checkpoint_manifest *manifest)
{
    manifest->entry = calloc((size_t)call->n, sizeof *manifest->entry);
    if (manifest->entry == NULL) return false;
    for (int i = 0; i < call->n; i++) {
        const tutti_checkpoint_state *state = &call->state[i];
        manifest->entry[i] =
            (struct checkpoint_entry){.name = strdup(state->name),
                                      .dtype = state->tensor.dtype,
                                      .replicated = state->replicated,
                                      .numel = state->replicated ? state->tensor.numel : call->sharded->numel,
                                      .data = state->tensor.data};
        manifest->n_entries = i + 1;
        if (manifest->entry[i].name == NULL) return false;
    }
    return true;
}

/* Lists a rank's parts of all buckets, in the order of its shard. */
static bool describe_shard(const struct tutti_sharded *sharded, int rank, struct checkpoint_shard *shard)
{
    shard->range = calloc((size_t)sharded->n_buckets, sizeof *shard->range);
    if (shard->range == NULL) return false;
    for (int k = sharded->n_buckets - 1; k >= 0; k--) {
        const struct shard_bucket *bucket = &sharded->bucket[k];
        int64_t numel, begin = shard_layout_part(bucket, rank, &numel);
        if (numel == 0) continue;
        shard->range[shard->n_ranges++] = (struct checkpoint_range){bucket->at + begin, numel};
        shard->numel += numel;
    }
    return true;
}

bool checkpoint_describe(const struct checkpoint_call *call, struct checkpoint_manifest *manifest)
{
    const struct tutti_sharded *sharded = call->sharded;
    *manifest = (struct checkpoint_manifest){.numel = sharded->numel};
    if (!describe_parameters(sharded, manifest) || !describe_states(call, manifest)) return false;
    manifest->shard = calloc((size_t)sharded->size, sizeof *manifest->shard);
    if (manifest->shard == NULL) return false;
    for (int rank = 0; rank < sharded->size; rank++) {
        manifest->n_shards = rank + 1;
        if (!describe_shard(sharded, rank, &manifest->shard[rank])) return false;
    }
    return true;
}
