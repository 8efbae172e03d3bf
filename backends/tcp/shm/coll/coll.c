/* Opens collective segments and queues their operations. */
#include "tcp/shm/coll/parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening ----------------------------------------------------------------------------------------------- */

static bool share_memory(const struct shm *shm, int32_t n, const int32_t *global_ranks)
{
    if (shm == NULL || n < 2 || n > shm->n) return false;
    for (int i = 0; i < n; i++)
        if (shm->local_rank_of[global_ranks[i]] < 0) return false;
    return true;
}

int coll_reserve(struct shm *shm, int32_t n, const int32_t *global_ranks)
{
    return share_memory(shm, n, global_ranks) ? coll_directory_reserve(shm, n) : COLL_ABSENT;
}

/* Returns the operation that ended last, or NULL. */
static struct coll_op *take_spare(struct coll_segment *segment)
{
    struct coll_op *op = SLIST_FIRST(&segment->spare);
    if (op == NULL) return NULL;
    SLIST_REMOVE_HEAD(&segment->spare, spare_link);
    segment->n_spare--;
    return op;
}

static void recycle(struct coll_segment *segment, struct coll_op *op)
{
    enum { SPARE_MOST = 64 };
    if (op == NULL || segment->n_spare == SPARE_MOST) {
        free(op);
        return;
    }
    SLIST_INSERT_HEAD(&segment->spare, op, spare_link);
    segment->n_spare++;
}

int coll_open(struct coll_segment *segment, struct shm *shm, int index, int32_t rank, int32_t n,
              const int32_t *global_ranks)
{
    TAILQ_INIT(&segment->ops);
    segment->state = COLL_NONE;
    if (index < 0 || index >= SHM_SEGMENTS || !share_memory(shm, n, global_ranks)) return TUTTI_OK;
    if (!coll_directory_has(shm, index)) return TUTTI_OK;
    *segment = (struct coll_segment){.shm = shm, .host = shm->config.host, .n = n, .rank = rank, .index = index};
    TAILQ_INIT(&segment->ops);
    segment->local_rank = malloc((size_t)n * sizeof *segment->local_rank);
    recycle(segment, calloc(1, sizeof(struct coll_op)));
    segment->classes = calloc((size_t)COLL_KINDS * CHOICE_CLASSES, sizeof *segment->classes);
    segment->moved = calloc((size_t)n, sizeof *segment->moved);
    bool has_memory = segment->local_rank != NULL && segment->classes != NULL && segment->moved != NULL;
    if (!has_memory || SLIST_EMPTY(&segment->spare))
        return shm->config.host->error(TUTTI_ERR_NO_MEMORY, "no memory for the collective segment of %d ranks", (int)n);
    for (int i = 0; i < n; i++) segment->local_rank[i] = shm->local_rank_of[global_ranks[i]];
    coll_lay_out(segment, shm, index, n);
    segment->next = coll_directory_first(shm, index);
    segment->all_in = segment->next - 1;
    segment->filled = segment->all_in - COLL_FRAGMENTS; /* long ago.  It may be less than 0; only differences matter */
    segment->state = COLL_READY;
    return TUTTI_OK;
}

void coll_close(struct coll_segment *segment)
{
    struct coll_op *op;
    if (segment->shm == NULL) return;
    while ((op = TAILQ_FIRST(&segment->ops)) != NULL) coll_cancel(segment, op->request);
    /* Steps of canceled operations are withdrawn.  The first of them may have left its number elsewhere (chunks.c). */
    coll_directory_leave(segment->shm, segment->index, segment->n, segment->next + COLL_RUN_AHEAD);
    free(segment->local_rank);
    while ((op = take_spare(segment)) != NULL) free(op);
    free(segment->classes);
    free(segment->moved);
    free(segment->scratch);
    coll_direct_free(segment);
    *segment = (struct coll_segment){0};
    TAILQ_INIT(&segment->ops);
}

/* ---- operations -------------------------------------------------------------------------------------------- */

static void finish(struct coll_segment *segment, struct coll_op *op)
{
    if (segment->unposted == op) segment->unposted = TAILQ_NEXT(op, link);
    TAILQ_REMOVE(&segment->ops, op, link);
    if (segment->unposted == TAILQ_FIRST(&segment->ops) && segment->unposted != NULL)
        segment->unposted = TAILQ_NEXT(segment->unposted, link); /* the first operation runs and posts itself */
    recycle(segment, op);
    if (!TAILQ_EMPTY(&segment->ops) || !segment->linked) return;
    LIST_REMOVE(segment, link);
    segment->linked = false;
}

/* Sets the bytes of the list and the tensor of an all_gather or a reduce_scatter. */
static void measure_list(const struct coll_segment *segment, struct coll_op *op)
{
    size_t own = coll_block_bytes(op, segment->rank), all = 0;
    for (int i = 0; i < segment->n; i++) all += coll_block_bytes(op, i);
    bool gathers = op->kind == TUTTI_ALL_GATHER;
    op->sent = gathers ? own : all;
    op->received = gathers ? all : own;
}

/* Sets the bytes of this rank's tensors. */
static void measure_tensors(const struct coll_segment *segment, struct coll_op *op)
{
    size_t blocks = tutti_kind_out_blocks(op->kind) ? (size_t)segment->n : 1;
    if (op->list != NULL) {
        measure_list(segment, op);
    } else if (op->path == COLL_UNEVEN) {
        op->sent = op->in_bytes;
        op->received = op->uneven.out_bytes;
    } else {
        op->sent = op->has_input ? op->in_bytes : 0;
        op->received = op->out != NULL ? op->bytes * blocks : 0;
    }
}

/* Makes the description of a call, or changes that of one that differs in its memory at most. */
static bool describe_anew(const struct coll_segment *segment, const tutti_op *wanted, struct coll_op *op)
{
    if (op->call != 0 && op->form != 0 && op->form == wanted->form) {
        coll_use_memory(wanted, op);
    } else {
        *op = (struct coll_op){.call = 0};
        if (!coll_describe(segment, wanted, op)) return false;
        measure_tensors(segment, op);
        op->is_simple = op->path == COLL_EAGER && op->class == NULL;
        if (op->is_simple) coll_set_awaited(segment, op);
    }
    op->call = op->path == COLL_UNEVEN && !coll_uneven_may_repeat(op) ? 0 : wanted->call;
    op->form = wanted->form;
    return true;
}

/* Describes the operation and resets its progress.  Reuses the last description if the call is the same. */
static bool describe_op(const struct coll_segment *segment, const tutti_op *wanted, struct coll_op *op)
{
    if ((op->call == 0 || op->call != wanted->call) && !describe_anew(segment, wanted, op)) return false;
    if (op->list != NULL) op->list = coll_list_of(wanted); /* the same tensors, maybe elsewhere */
    if (op->path == COLL_UNEVEN) coll_uneven_repeat(wanted, op);
    op->async = wanted->async;
    op->first = 0;
    op->at = op->posted = 0;
    op->arrived = false;
    if (op->probes) op->ahead = 0; /* as before the last call's probe: see steps.c */
    return true;
}

/* Posts as many of the operations behind the first one as possible. */
static void run_ahead(struct coll_segment *segment)
{
    while (segment->unposted != NULL && coll_run_ahead(segment, segment->unposted))
        segment->unposted = TAILQ_NEXT(segment->unposted, link);
}

enum { SETTLE_POLLS = 8 }; /* polls after which this rank's stores have mostly reached the cache */

/* Polls an operation that has begun, before it is queued: the other ranks often arrive within a few polls, which saves
 * a progress call and a completion.  Returns its status, or 1. */
static int poll_briefly(struct coll_segment *segment, struct coll_op *op, bool moved)
{
    int status = 1;
    for (int i = 0; i < segment->shm->polls && status == 1; i++) {
        if (!moved) shm_pause(segment->shm);
        if (i == SETTLE_POLLS) shm_settle(segment->shm);
        moved = false;
        status = coll_advance(segment, op, &moved);
    }
    shm_polled(segment->shm, status != 1);
    return status;
}

/* Does the rest of coll_begin for an operation that is not simple, or cannot complete at once. */
static __attribute__((noinline)) int begin_longer(struct coll_segment *segment, struct coll_op *op, int status,
                                                  struct coll_list *running)
{
    bool moved = op->first != 0, runs = TAILQ_EMPTY(&segment->ops);
    /* Of a simple one, only its beginning: it has to look at the other ranks' steps. */
    if (runs && (!op->is_simple || op->first == 0)) status = coll_advance(segment, op, &moved);
    if (runs && status == 1 && !op->async && op->path != COLL_DIRECT) status = poll_briefly(segment, op, moved);
    if (status == TUTTI_OK) {
        recycle(segment, op);
        return TUTTI_REQUEST_DONE;
    }
    TAILQ_INSERT_TAIL(&segment->ops, op, link);
    if (!runs && segment->unposted == NULL) segment->unposted = op;
    if (!runs) run_ahead(segment);
    /* Queue a failed operation too: its failure belongs to the request, and the next progress call finds it again. */
    if (!segment->linked) LIST_INSERT_HEAD(running, segment, link);
    segment->linked = true;
    return TUTTI_REQUEST_PENDING;
}

int coll_begin(struct coll_segment *segment, const tutti_op *wanted, tutti_request *request, struct coll_list *running)
{
    if (segment->state != COLL_READY) return TUTTI_ERR_UNSUPPORTED;
    shm_settle_sometimes(segment->shm);
    struct coll_op *op = take_spare(segment);
    if (op == NULL) op = calloc(1, sizeof *op);
    if (op == NULL) return segment->host->error(TUTTI_ERR_NO_MEMORY, "no memory for another pending collective");
    if (!describe_op(segment, wanted, op)) {
        recycle(segment, op);
        return TUTTI_ERR_UNSUPPORTED;
    }
    op->request = request;
    transport_count_sent(&segment->shm->transport, op->sent);
    transport_count_received(&segment->shm->transport, op->received);
    int status = op->is_simple && TAILQ_EMPTY(&segment->ops) ? coll_run_simple(segment, op) : 1;
    if (status != TUTTI_OK) return begin_longer(segment, op, status, running);
    recycle(segment, op);
    return TUTTI_REQUEST_DONE;
}

bool coll_cancel(struct coll_segment *segment, tutti_request *request)
{
    struct coll_op *op;
    TAILQ_FOREACH(op, &segment->ops, link)
    if (op->request == request) break;
    if (op == NULL) return false;
    coll_withdraw_steps(segment, op);
    finish(segment, op);
    segment->state = COLL_NONE; /* the steps are out of order, and the group has failed */
    return true;
}

static int run(struct coll_segment *segment)
{
    int moves = 0;
    struct coll_op *op;
    while ((op = TAILQ_FIRST(&segment->ops)) != NULL) {
        bool moved = false;
        int status = coll_advance(segment, op, &moved);
        moves += moved;
        if (status == 1) {
            run_ahead(segment);
            break;
        }
        tutti_request *request = op->request;
        bool linked = segment->linked;
        /* After a mismatch keep the steps: each peer must find the difference itself, and reads no memory before.  Not
         * so if a block has another size, which its receiver alone finds while others read memory.  A rank that reads
         * first has posted none; its peers learn of the failure by a message.  Until here the steps are needed to find
         * the failure again. */
        bool keeps = status == TUTTI_OK || (status == TUTTI_ERR_MISMATCH && !op->uneven.refused);
        if (!keeps) coll_withdraw_steps(segment, op);
        finish(segment, op);
        segment->host->complete(request, status);
        moves++;
        if (status != TUTTI_OK || !linked) break;
    }
    return moves;
}

int coll_progress(struct coll_list *running)
{
    int moves = 0;
    struct coll_segment *segment, *next;
    for (segment = LIST_FIRST(running); segment != NULL; segment = next) {
        next = LIST_NEXT(segment, link);
        struct shm *shm = segment->shm; /* completion may close the segment */
        moves += run(segment);
        shm_settle(shm);
    }
    return moves;
}

bool coll_is_ready(const struct coll_list *running)
{
    struct coll_segment *segment;
    LIST_FOREACH(segment, running, link)
    if (coll_op_is_ready(segment, TAILQ_FIRST(&segment->ops))) return true;
    return false;
}

void coll_awaits(const struct coll_segment *segment, const tutti_request *request, bool *ranks)
{
    const struct coll_op *op = TAILQ_FIRST(&segment->ops);
    if (op == NULL || op->request != request) return; /* the request waits for an earlier operation */
    for (int i = 0; i < segment->n; i++)
        if (coll_op_awaits(segment, op, i)) ranks[i] = true;
}
