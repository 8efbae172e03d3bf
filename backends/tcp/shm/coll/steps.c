/* Steps of an operation: posts them, waits for the other ranks, and runs them (coll.h). */
#include "tcp/shm/coll/coll.h"
#include "tcp/shm/own_line.h"

/* Steps ahead in which a rank asks for lines that it will read, further than the rank that fills them.  If both asked
 * for a line at the same time, they would take it from each other. */
enum { FETCH_AHEAD = 2 * OWN_AHEAD };

bool coll_has_posted(const struct coll_segment *segment, int rank, uint64_t step)
{
    /* acquire: makes the control slot's contents visible with its step */
    return atomic_load_explicit(&coll_slot_of(segment, rank, step)->step, memory_order_acquire) >= step;
}

static uint64_t step_of(const struct coll_op *op)
{
    return op->first + (uint64_t)op->at;
}

/* Returns the number of the next step to post. */
static uint64_t next_step(const struct coll_op *op)
{
    return op->first + (uint64_t)op->posted;
}

static bool is_posted(const struct coll_op *op)
{
    return op->posted > op->at;
}

/* Returns the steps since the buffers of the next step were used.  The first steps of a pipelined operation find
 * fragment buffers as an earlier one has left them, maybe long ago.  In two steps in a row these are two buffers.  If
 * the operation continues as a direct one, it uses an eager buffer, too. */
static uint64_t depth_of_next(const struct coll_op *op)
{
    if (op->agrees) return COLL_FRAGMENTS; /* wait for the step before: see agree.c */
    if (op->path != COLL_PIPELINED || op->parts > 0 || op->posted >= COLL_FRAGMENTS) return op->depth;
    uint64_t most = op->probes ? COLL_EAGER_BUFFERS - COLL_AHEAD : COLL_SLOTS - COLL_RUN_AHEAD;
    uint64_t steps = next_step(op) - op->filled, depth = (steps + 1) / COLL_FRAGMENTS * COLL_FRAGMENTS;
    return depth < most ? depth : most;
}

/* Returns the step that all ranks must have posted before this rank posts its next one: see coll.h. */
static uint64_t required_step(const struct coll_op *op)
{
    uint64_t depth = depth_of_next(op);
    return next_step(op) < depth ? 0 : next_step(op) - depth + 1;
}

/* Returns the step to wait for if the required one has not been posted.  It is a later one, so that this rank need not
 * look at each of the next steps: each look waits for a cache line that another core has just written.  Where buffers
 * are few, the wait would take longer. */
static uint64_t awaited_step(const struct coll_op *op)
{
    uint64_t before = required_step(op);
    bool are_few = op->agrees || op->depth < COLL_EAGER_BUFFERS - COLL_AHEAD;
    return before == 0 || are_few ? before : before + op->depth / 2;
}

/* Asks for the lines that this rank fills OWN_AHEAD steps later if the operations there are like this one. */
static void own_ahead(const struct coll_segment *segment, const struct coll_op *op)
{
    uint64_t step = next_step(op) - 1 + OWN_AHEAD;
    own_line(coll_slot_of(segment, segment->rank, step));
    if (op->path == COLL_EAGER) coll_eager_own(segment, op, step);
    if (op->path == COLL_UNEVEN) coll_uneven_own(segment, op, step);
}

/* Asks for the lines that this rank reads from another FETCH_AHEAD steps later, which that one has filled if it runs
 * ahead. */
static void fetch_ahead(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    uint64_t step = step_of(op) + FETCH_AHEAD;
    fetch_line(coll_slot_of(segment, rank, step));
    if (op->path == COLL_EAGER) coll_eager_fetch(segment, op, rank, step);
    if (op->path == COLL_UNEVEN) coll_uneven_fetch(segment, op, rank, step);
}

/* Fills this rank's buffers for the next step. */
static void fill_step(struct coll_segment *segment, struct coll_op *op)
{
    switch (op->path) {
    case COLL_EAGER:
        coll_eager_post(segment, op);
        break;
    case COLL_DIRECT:
        coll_direct_post(segment, op);
        break;
    case COLL_LOCKSTEP:
    case COLL_PIPELINED:
        if (op->posted > 0 || !op->probes || !coll_shared_declare(segment, op)) coll_pipelined_post(segment, op);
        break;
    case COLL_UNEVEN:
        coll_uneven_post(segment, op);
        break;
    case COLL_NO_PATH:
        break; /* not begun */
    }
}

static inline __attribute__((always_inline)) void publish_step(struct coll_segment *segment, const struct coll_op *op,
                                                               uint64_t step)
{
    struct coll_slot *slot = coll_slot_of(segment, segment->rank, step);
    slot->fingerprint = op->request->fingerprint;
    /* release: publishes the control slot; after what this rank has read before */
    atomic_store_explicit(&slot->step, step, memory_order_release);
    for (int i = 0; i < segment->n; i++)
        if (i != segment->rank) shm_wake(segment->shm, segment->local_rank[i]);
}

/* Posts the next step.  A rank that reads first only makes sure that it can: see end_reads. */
static void post_step(struct coll_segment *segment, struct coll_op *op)
{
    int64_t begin_ns = coll_work_begin(segment, op);
    fill_step(segment, op);
    coll_work_end(segment, op, begin_ns);
    if (!op->uneven.reads_first) publish_step(segment, op, next_step(op));
    if (op->path == COLL_UNEVEN && tutti_kind_has_root(op->kind)) coll_uneven_copy_own(segment, op);
    op->posted++;
    own_ahead(segment, op);
}

static void begin_step(const struct coll_segment *segment, struct coll_op *op)
{
    op->arrived = false;
    coll_set_awaited(segment, op);
    op->peer = op->awaits_from;
}

int coll_lost(const struct coll_segment *segment, int rank)
{
    const struct shm_peer *peer = &segment->shm->peer[segment->local_rank[rank]];
    if (!peer->lost) return TUTTI_OK;
    return segment->host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: %s", peer->rank, peer->why);
}

/* True if the operation waits for the rank.  It waits for the rank to post this step or, if this rank's control slot is
 * still in use, to finish reading it. */
bool coll_op_awaits(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    uint64_t step = is_posted(op) ? step_of(op) : awaited_step(op);
    if (rank == segment->rank) return false;
    if (op->arrived && op->path == COLL_UNEVEN && coll_uneven_awaits(segment, op, rank)) return true;
    if (is_posted(op) && !coll_awaits_rank(op, rank)) return false;
    return !coll_has_posted(segment, rank, step);
}

/* Returns 1 if all awaited ranks may still arrive, or an error if any of them is lost. */
static int check_lost(const struct coll_segment *segment, const struct coll_op *op)
{
    for (int i = 0; segment->shm->has_lost && i < segment->n; i++) {
        int status = coll_op_awaits(segment, op, i) ? coll_lost(segment, i) : TUTTI_OK;
        if (status != TUTTI_OK) return status;
    }
    return 1;
}

/* Returns TUTTI_OK if this rank may fill its control slot and buffer for the next step (coll.h), 1 if it must wait, or
 * an error if an awaited rank is lost. */
static int check_slot_free(struct coll_segment *segment, const struct coll_op *op)
{
    if (required_step(op) <= segment->all_in) return TUTTI_OK;
    /* The acquire in coll_has_posted orders the other ranks' reads of the slot before this rank's writes. */
    for (int i = 0; i < segment->n; i++)
        if (i != segment->rank && !coll_has_posted(segment, i, awaited_step(op))) return check_lost(segment, op);
    segment->all_in = awaited_step(op);
    return TUTTI_OK;
}

/* Returns TUTTI_OK if the rank has arrived and agrees, 1 if it has not arrived, or an error. */
static int check_arrival(struct coll_segment *segment, const struct coll_op *op, int rank)
{
    const struct coll_slot *slot = coll_slot_of(segment, rank, step_of(op));
    if (!coll_has_posted(segment, rank, step_of(op))) return check_lost(segment, op);
    if (slot->fingerprint == op->request->fingerprint) return TUTTI_OK;
    op->request->source = rank;
    op->request->found_fingerprint = slot->fingerprint;
    return segment->host->error(TUTTI_ERR_MISMATCH, "rank %d called another operation or passed other arguments",
                                segment->shm->peer[segment->local_rank[rank]].rank);
}

/* Returns 1 if the operation may go on waiting for chunks, or an error. */
static int check_chunks(struct coll_segment *segment, const struct coll_op *op)
{
    for (int i = 0; i < segment->n; i++) {
        int status = coll_uneven_differs(segment, op, i) ? check_arrival(segment, op, i) : TUTTI_OK;
        if (status != TUTTI_OK) return status;
    }
    return check_lost(segment, op);
}

static inline __attribute__((always_inline)) int await_arrivals(struct coll_segment *segment, struct coll_op *op)
{
    bool may_run_ahead = tutti_kind_has_root(op->kind);
    for (; op->peer < op->awaits_to; op->peer++) {
        if (op->peer == segment->rank) continue;
        int status = check_arrival(segment, op, op->peer);
        if (status != TUTTI_OK) return status;
        if (may_run_ahead) fetch_ahead(segment, op, op->peer);
    }
    if (op->awaits_to - op->awaits_from == segment->n) segment->all_in = step_of(op);
    op->arrived = true;
    op->peer = 0;
    op->done = 0;
    return TUTTI_OK;
}

/* Returns TUTTI_OK if the ranks that the last step waits for are still alive.  Then no pid has been reused, so data
 * that were read from their memory are valid.  None of them can have completed the operation yet, so none may have
 * exited.  The root of an operation checks for the other ranks what these have read from each other. */
static int check_alive(struct coll_segment *segment, const struct coll_op *op)
{
    shm_check_liveness(segment->shm); /* includes an acquire fence: see coll_withdraw_steps */
    for (int i = op->awaits_from; i < op->awaits_to; i++) {
        int status = i == segment->rank ? TUTTI_OK : coll_lost(segment, i);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

static int run_step(struct coll_segment *segment, struct coll_op *op)
{
    switch (op->path) {
    case COLL_EAGER:
        coll_eager_run(segment, op);
        break;
    case COLL_DIRECT:
        return coll_is_last(op) ? TUTTI_OK : coll_direct_run(segment, op);
    case COLL_UNEVEN:
        return coll_is_last(op) ? TUTTI_OK : coll_uneven_run(segment, op);
    case COLL_LOCKSTEP:
    case COLL_PIPELINED:
        coll_pipelined_run(segment, op);
        break;
    case COLL_NO_PATH:
        break; /* not begun */
    }
    return TUTTI_OK;
}

/* Allocates what the operation's path needs. */
static int prepare(struct coll_segment *segment, const struct coll_op *op)
{
    bool exposes = op->path == COLL_DIRECT || (op->path == COLL_UNEVEN && op->uneven.place == COLL_IN_MEMORY);
    return exposes ? coll_direct_prepare(segment, op) : TUTTI_OK;
}

/* Assigns steps to an operation that starts to run.  The previous operation's number of steps is not known earlier. */
static int start_op(struct coll_segment *segment, struct coll_op *op)
{
    if (op->class != NULL) coll_agree_start(segment, op);
    int status = prepare(segment, op);
    if (status != TUTTI_OK) return status;
    if (op->class != NULL) op->class->calls++;
    op->first = segment->next;
    op->filled = segment->filled;
    if (op->parts > 0 && !op->agrees) coll_take_parts(segment, op);
    return TUTTI_OK;
}

/* Posts the step of a rank that has read.  What it has read from memory counts only if the step there has not been
 * withdrawn, and the rank not been replaced.  Other ranks may have completed the operation and exited.  Returns
 * TUTTI_OK, 1 if it must wait again, or an error. */
static int end_reads(struct coll_segment *segment, struct coll_op *op)
{
    if (op->uneven.reads_memory) shm_check_liveness(segment->shm); /* includes an acquire fence: see check_alive */
    for (int i = op->awaits_from; i < op->awaits_to; i++) {
        if (i == segment->rank || !coll_uneven_is_in_memory(segment, op, i)) continue;
        int status = coll_lost(segment, i);
        if (status != TUTTI_OK) return status;
        if (coll_has_posted(segment, i, step_of(op))) continue;
        op->arrived = false;
        op->peer = i;
        return 1;
    }
    publish_step(segment, op, step_of(op));
    return TUTTI_OK;
}

/* Makes way for the next operation. */
static void end_steps(struct coll_segment *segment, const struct coll_op *op)
{
    segment->next = op->first + (uint64_t)op->steps;
    bool may_use_fragment = op->path == COLL_UNEVEN ? coll_is_in_fragment(op->uneven.place)
                                                    : op->path != COLL_EAGER && op->path != COLL_LOCKSTEP;
    if (may_use_fragment) segment->filled = segment->next - 1;
    if (may_use_fragment && op->parts == 0) segment->whole = segment->next - 1;
}

/* Continues once all ranks have declared whether their memory is shared. */
static int continue_after_probe(struct coll_segment *segment, struct coll_op *op)
{
    op->ahead = op->path == COLL_LOCKSTEP ? COLL_AHEAD : 0;
    if (!coll_shared_by_all(segment, op)) return TUTTI_OK;
    int status = coll_direct_prepare(segment, op); /* the data can be read in place */
    if (status != TUTTI_OK) return status;
    coll_use_direct(segment, op);
    coll_set_awaited(segment, op);
    return TUTTI_OK;
}

/* Begins the first step with the way that all ranks take. */
static void agree(struct coll_segment *segment, struct coll_op *op)
{
    coll_agree(segment, op);
    if (op->parts > 0) coll_take_parts(segment, op);
    begin_step(segment, op);
}

/* Posts the current step and, if possible, the following ones. */
static int post_steps(struct coll_segment *segment, struct coll_op *op, bool *moved)
{
    while (op->posted <= op->at + op->ahead && op->posted < op->steps) {
        int status = check_slot_free(segment, op);
        if (status == 1 && is_posted(op)) return TUTTI_OK;
        if (status == TUTTI_OK && op->agrees) agree(segment, op);
        /* Once more after a failure, which is found again: see coll_begin. */
        if (status == TUTTI_OK && op->class != NULL && op->posted == 0) status = prepare(segment, op);
        if (status == TUTTI_OK && coll_is_last(op)) status = check_alive(segment, op);
        if (status != TUTTI_OK) return status;
        post_step(segment, op);
        *moved = true;
    }
    return TUTTI_OK;
}

static int run_steps(struct coll_segment *segment, struct coll_op *op, bool *moved)
{
    if (op->first == 0) {
        int status = start_op(segment, op);
        if (status != TUTTI_OK) return status;
        begin_step(segment, op);
    }
    for (bool worked = false;; worked = op->path == COLL_PIPELINED) {
        int status = post_steps(segment, op, moved);
        if (status != TUTTI_OK) return status;
        if (!op->arrived) {
            status = await_arrivals(segment, op);
            if (status != TUTTI_OK) return status;
            *moved = true;
            if (op->probes && op->at == 0) status = continue_after_probe(segment, op);
            if (op->path == COLL_UNEVEN && op->at == 0) status = coll_uneven_arrived(segment, op);
            op->arrived = status == TUTTI_OK; /* not after a failure, which must be found again: see coll_begin */
            if (!op->arrived) op->peer = op->awaits_from;
            if (status != TUTTI_OK) return status;
        }
        if (worked) return 1; /* at most one chunk per call */
        int64_t begin_ns = coll_work_begin(segment, op);
        status = run_step(segment, op);
        coll_work_end(segment, op, begin_ns);
        if (status == COLL_WAITS) return check_chunks(segment, op);
        if (status < 0) return status;
        *moved = true;
        if (status == TUTTI_OK && op->uneven.reads_first) status = end_reads(segment, op);
        if (status != TUTTI_OK) return status;
        if (++op->at == op->steps) return TUTTI_OK;
        begin_step(segment, op);
    }
}

int coll_advance(struct coll_segment *segment, struct coll_op *op, bool *moved)
{
    int status = run_steps(segment, op, moved);
    if (status != 1 && op->first != 0) end_steps(segment, op);
    if (status == TUTTI_OK && op->class != NULL) coll_agree_done(segment, op);
    return status;
}

/* Does what run_steps would.  The ranks to wait for are part of the description. */
int coll_run_simple(struct coll_segment *segment, struct coll_op *op)
{
    uint64_t step = segment->next;
    if (step + 1 > segment->all_in + op->depth) return 1; /* see required_step */
    op->first = step;
    op->peer = op->awaits_from;
    coll_eager_post(segment, op);
    publish_step(segment, op, step);
    op->posted = 1;
    own_ahead(segment, op);
    int status = await_arrivals(segment, op);
    if (status != TUTTI_OK) return status;
    coll_eager_run(segment, op);
    segment->next = step + 1;
    return TUTTI_OK;
}

/* True if the operation uses no buffer that a longer operation may use: see coll.h. */
static bool is_short(const struct coll_op *op)
{
    return op->is_simple && op->in_bytes <= COLL_SMALL;
}

bool coll_run_ahead(struct coll_segment *segment, struct coll_op *op)
{
    const struct coll_op *before = TAILQ_PREV(op, coll_ops, link), *current = TAILQ_FIRST(&segment->ops);
    bool moved = false;
    if (!is_short(op) || !is_short(before) || !is_posted(before)) return false;
    uint64_t first = before->first + (uint64_t)before->steps;
    if (first - current->first > COLL_RUN_AHEAD) return false;
    op->first = first;
    begin_step(segment, op);
    return post_steps(segment, op, &moved) == TUTTI_OK && moved; /* a failure is found again when the operation runs */
}

/* The fence orders these stores before the caller's later writes to its memory.  Peers check this rank in the last step
 * after they have read, with a fence in between (check_alive).  A peer that has read any of those writes therefore
 * finds the step withdrawn. */
void coll_withdraw_steps(struct coll_segment *segment, const struct coll_op *op)
{
    if (op->first == 0) return; /* the operation has not started */
    if (op->path != COLL_EAGER) segment->shm->arena.is_read = true;
    for (int i = 0; i < op->steps; i++) {
        struct coll_slot *slot = coll_slot_of(segment, segment->rank, op->first + (uint64_t)i);
        if (atomic_load_explicit(&slot->step, memory_order_relaxed) < op->first) continue; /* not posted yet */
        atomic_store_explicit(&slot->step, 0, memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_release);
}

bool coll_op_is_ready(struct coll_segment *segment, const struct coll_op *op)
{
    if (!is_posted(op)) return check_slot_free(segment, op) != 1;
    if (op->arrived) return op->path != COLL_UNEVEN || coll_uneven_is_ready(segment, op); /* blocks are left */
    return coll_has_posted(segment, op->peer, step_of(op));
}
