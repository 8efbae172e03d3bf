#include "dispatch/stage.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "dispatch/dispatch.h"
#include "dispatch/hazards.h"
#include "dispatch/issue.h"
#include "group/group_fail.h"
#include "op/op.h"
#include "progress/work.h"

/* A chunk is large enough for the full bandwidth.  An operation has few chunks, because each makes three parts. */
enum { CHUNK_LEAST = 4 << 20, CHUNKS_MOST = 16, SLOTS = 3, ALIGN = 64 };

/* State of a staged operation.  It is freed when the operation has ended. */
struct stage {
    struct engine_event event; /* first member: see close_stage */
    struct tutti_group *group;
    void *handle;
};

/* Describes how the tensors of an operation are cut.  Each consists of blocks of `rows` elements, one block per rank
 * for the flat side of a gather.  A chunk takes the same rows of all blocks.  Lists and messages are not cut, because
 * the ranks do not know each other's sizes. */
struct cut {
    const tutti_op *op;
    bool whole;
    int64_t rows, most; /* elements of a block, and of its part in one chunk */
    int n_tensors;
    size_t *at; /* offset of each tensor in a slot, inputs before outputs */
    size_t slot_bytes;
    int chunks, slots;
};

bool stage_is_needed(const struct backend_entry *entry, const tutti_op *op)
{
    const tutti_tensor *any = op->n_in > 0 ? op->in : op->n_out > 0 ? op->out : NULL;
    return any != NULL && any->device.type != TUTTI_CPU &&
           !group_takes_device(entry->backend, group_device_index(any->device));
}

/* ---- cutting ----------------------------------------------------------------------------------------------- */

static const tutti_tensor *tensor_of(const struct cut *cut, int i)
{
    return i < cut->op->n_in ? &cut->op->in[i] : &cut->op->out[i - cut->op->n_in];
}

static int64_t blocks_of(const struct cut *cut, const tutti_tensor *tensor)
{
    return cut->whole || cut->rows == 0 ? 1 : tensor->numel / cut->rows;
}

static size_t aligned(int64_t bytes)
{
    return ((size_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* True if an operation in place stays in place in the copy. */
static bool stays_in_place(const tutti_op *op)
{
    return !tutti_kind_has_blocks(op->kind) && tutti_op_is_in_place(op, 0);
}

static int cut_up(const tutti_op *op, int size, struct cut *cut)
{
    int64_t element = tutti_dtype_bytes(op->dtype);
    bool message = op_is_message(op);
    *cut = (struct cut){.op = op, .n_tensors = op->n_in + op->n_out, .chunks = 1};
    cut->whole = op->list || op->in_splits != NULL || message;
    if (!cut->whole) {
        int64_t row = element * (tutti_kind_has_blocks(op->kind) ? size : 1);
        cut->rows = tutti_op_block_numel(op, size);
        int64_t least = CHUNK_LEAST / row, share = cut->rows / CHUNKS_MOST + 1;
        cut->most = least > share ? least : share;
        if (cut->most > 0 && cut->rows > cut->most) cut->chunks = (int)((cut->rows + cut->most - 1) / cut->most);
        if (cut->most > cut->rows) cut->most = cut->rows;
    }
    cut->slots = cut->chunks < SLOTS ? cut->chunks : SLOTS;
    cut->at = calloc((size_t)cut->n_tensors, sizeof *cut->at);
    if (cut->at == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory to stage %s", tutti_kind_find(op->kind)->name);
    for (int i = 0; i < cut->n_tensors; i++) {
        const tutti_tensor *tensor = tensor_of(cut, i);
        cut->at[i] = cut->slot_bytes;
        if (i == 1 && stays_in_place(op))
            cut->at[i] = cut->at[0];
        else
            cut->slot_bytes += aligned((cut->whole ? tensor->numel : blocks_of(cut, tensor) * cut->most) * element);
    }
    return TUTTI_OK;
}

/* ---- parts ------------------------------------------------------------------------------------------------- */

/* The tensors of one chunk: on the device, in blocks, and in a slot, where the blocks are consecutive. */
struct chunk {
    const struct cut *cut;
    char *slot;
    int64_t first, rows;
    tutti_tensor *host;                /* one per tensor */
    tutti_tensor *on_device, *on_host; /* pieces to be copied, on the device and in the slot */
    int n_pieces;
};

static void add_pieces(struct chunk *chunk, int i)
{
    const struct cut *cut = chunk->cut;
    const tutti_tensor *tensor = tensor_of(cut, i), *host = &chunk->host[i];
    int64_t element = tutti_dtype_bytes(tensor->dtype), blocks = blocks_of(cut, tensor);
    bool together = cut->whole || chunk->rows == cut->rows;
    if (host->numel == 0) return;
    for (int64_t b = 0; b < (together ? 1 : blocks); b++) {
        tutti_tensor *on_device = &chunk->on_device[chunk->n_pieces], *on_host = &chunk->on_host[chunk->n_pieces];
        *on_device = *tensor;
        *on_host = *host;
        chunk->n_pieces++;
        if (together) continue;
        on_device->numel = on_host->numel = chunk->rows;
        on_device->data = (char *)tensor->data + (b * cut->rows + chunk->first) * element;
        on_host->data = (char *)host->data + b * chunk->rows * element;
    }
}

/* Issues op, a part of whole, through the given entry. */
static int issue_part(struct tutti_work *whole, tutti_op *op, const struct backend_entry *entry)
{
    struct tutti_group *group = whole->group;
    tutti_opts opts = {.timeout_ms = whole->op.timeout_ms > 0 ? whole->op.timeout_ms : TUTTI_NOW,
                       .group_rank = whole->group_rank};
    struct tutti_work *work = NULL;
    const tutti_op *seen = op->kind == TUTTI_COPY ? op : &whole->op;
    int status = issue_new(group, op, fingerprint_of(seen, group->size), &opts, true, &work);
    if (status != TUTTI_OK) return status;
    work->entry = entry;
    work->parent = whole;
    issue_enlist(work);
    whole->parts++; /* before the dispatch, which may end the part at once */
    if (hazards_must_wait(work))
        group->engine->n_blocked++;
    else
        status = dispatch_through(work, entry);
    if (status < 0) {
        whole->parts--;
        issue_undo(work);
        return status;
    }
    issue_advance(group, &work->op, work->fingerprint);
    work_release_locked(work);
    return TUTTI_OK;
}

static int copy_part(struct tutti_work *work, const struct chunk *chunk, void *handle, bool out)
{
    if (chunk->n_pieces == 0) return TUTTI_OK;
    tutti_op op = {.size = sizeof op,
                   .kind = TUTTI_COPY,
                   .dtype = work->op.dtype,
                   .root = -1,
                   .n_in = chunk->n_pieces,
                   .in = out ? chunk->on_device : chunk->on_host,
                   .n_out = chunk->n_pieces,
                   .out = out ? chunk->on_host : chunk->on_device,
                   .stream = handle};
    return issue_part(work, &op, &work->group->stager);
}

/* Issues the parts of a chunk: a copy from the device, the operation, a copy back. */
static int issue_chunk(struct tutti_work *work, const struct backend_entry *entry, struct chunk *chunk, void *handle)
{
    const struct cut *cut = chunk->cut;
    tutti_op op = work->op;
    bool is_source = op_is_source(&op, work->group->rank);
    op.tool = NULL; /* tools see the whole */
    op.call = 0;    /* 0: its tensors differ from those of the caller's call */
    for (int i = 0; i < cut->n_tensors; i++) {
        chunk->host[i] = *tensor_of(cut, i);
        chunk->host[i].device = (tutti_device){TUTTI_CPU, 0};
        chunk->host[i].data = chunk->slot + cut->at[i];
        if (!cut->whole) chunk->host[i].numel = blocks_of(cut, tensor_of(cut, i)) * chunk->rows;
    }
    op.in = chunk->host;
    op.out = chunk->host + op.n_in;
    chunk->n_pieces = 0;
    for (int i = 0; i < (is_source ? cut->n_tensors : op.n_in); i++) add_pieces(chunk, i);
    int status = copy_part(work, chunk, handle, true);
    if (status == TUTTI_OK) status = issue_part(work, &op, entry);
    chunk->n_pieces = 0;
    for (int i = op.n_in; i < cut->n_tensors && !is_source; i++) add_pieces(chunk, i);
    return status == TUTTI_OK ? copy_part(work, chunk, handle, false) : status;
}

static int issue_all(struct tutti_work *work, const struct backend_entry *entry, const struct cut *cut, char *memory,
                     void *handle)
{
    size_t most = (size_t)cut->n_tensors + (size_t)work->group->size;
    struct chunk chunk = {.cut = cut};
    chunk.host = calloc((size_t)cut->n_tensors + 2 * most, sizeof *chunk.host);
    if (chunk.host == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory to stage %s", tutti_kind_find(work->op.kind)->name);
    chunk.on_device = chunk.host + cut->n_tensors;
    chunk.on_host = chunk.on_device + most;
    int status = TUTTI_OK;
    for (int c = 0; c < cut->chunks && status == TUTTI_OK; c++) {
        chunk.slot = memory + (size_t)(c % cut->slots) * cut->slot_bytes;
        chunk.first = (int64_t)c * cut->most;
        chunk.rows = cut->rows - chunk.first < cut->most ? cut->rows - chunk.first : cut->most;
        status = issue_chunk(work, entry, &chunk, handle);
    }
    free(chunk.host);
    return status;
}

/* ---- staged operations ----------------------------------------------------------------------------------------- */

static int open_stage(struct tutti_work *work, const struct cut *cut, char **memory)
{
    const struct backend_entry *stager = &work->group->stager;
    struct stage *stage = calloc(1, sizeof *stage);
    void *given = NULL;
    if (stage == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory to stage %s", tutti_kind_find(work->op.kind)->name);
    stage->group = work->group;
    size_t bytes = cut->slot_bytes * (size_t)cut->slots;
    int status = stager->backend->stage_open(stager->state, &work->op, bytes, &stage->handle, &given);
    if (status != TUTTI_OK) {
        free(stage);
        return status;
    }
    work->stage = stage;
    *memory = given;
    return TUTTI_OK;
}

int stage_begin(struct tutti_work *work, const struct backend_entry *entry)
{
    struct cut cut;
    char *memory = NULL;
    int status = cut_up(&work->op, work->group->size, &cut);
    if (status == TUTTI_OK) status = open_stage(work, &cut, &memory);
    if (status != TUTTI_OK) {
        free(cut.at);
        return status;
    }
    if (work->start_ns == 0) work_start_clock(work, clock_now_ns());
    work->deadline_ns = CLOCK_NEVER; /* its parts have deadlines */
    work->point_to_point = true;     /* its parts have places among the group's collectives */
    work->parts = 1;                 /* kept above 0 until all parts are issued */
    status = issue_all(work, entry, &cut, memory, work->stage->handle);
    free(cut.at);
    /* Some parts may already run.  The other ranks wait for parts that were not issued, so the group fails. */
    if (status != TUTTI_OK) {
        if (work->failing == TUTTI_OK) { /* otherwise a part has failed and set the text */
            work->failing = status;
            work->text = strdup(error_text());
        }
        group_fail(work->group, work->failing, work->text != NULL ? work->text : "", true);
    }
    if (--work->parts == 0) work_end(work, work->failing, NULL);
    return TUTTI_OK;
}

static void close_stage(struct engine_event *event)
{
    struct stage *stage = (struct stage *)event;
    const struct backend_entry *stager = &stage->group->stager;
    if (stager->state != NULL) stager->backend->stage_close(stager->state, stage->handle);
    free(stage);
}

/* Posts an event, because the caller may be within one of the plug-in's entries. */
void stage_ended(struct stage *stage)
{
    stage->event.handle = close_stage;
    engine_post(stage->group->engine, &stage->event);
}
