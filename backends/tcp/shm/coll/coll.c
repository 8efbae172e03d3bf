/* Collective segments: opening, steps, and the queue of operations. */
#include "tcp/shm/coll/coll.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    EAGER_MAX = 16 << 10,
    EAGER_MIN = 4 << 10,
    FRAGMENT_MAX = 256 << 10,
    FRAGMENT_MIN = SHM_RANKS_MAX * SHM_LINE / 2,
    FEW_RANKS = 8
};

enum { PATIENCE = 64 }; /* consecutive blocking operations before a rank declares that it waits */

/* ---- layout ------------------------------------------------------------------------------------------------ */

static size_t eager_bytes(int n)
{
    size_t bytes = EAGER_MAX;
    for (int many = FEW_RANKS; many < n && bytes > EAGER_MIN; many *= 2) bytes /= 2;
    return bytes;
}

static size_t control_slots_bytes(int n)
{
    return (size_t)n * COLL_SLOTS * sizeof(struct coll_slot);
}

static size_t small_buffers_bytes(int n)
{
    return (size_t)n * COLL_SMALL_BUFFERS * COLL_SMALL;
}

static size_t eager_buffers_bytes(int n)
{
    return (size_t)n * COLL_EAGER_BUFFERS * eager_bytes(n);
}

/* Two fragment buffers fit the second-level cache.  With many ranks each is smaller, but holds at least a line
 * (parts.h) per rank.  A segment grows no faster than the number of ranks. */
static size_t fragment_bytes(int n)
{
    size_t bytes = FRAGMENT_MAX;
    for (int many = FEW_RANKS; many < n; many *= 2) bytes /= 2;
    return bytes > FRAGMENT_MIN ? bytes : FRAGMENT_MIN;
}

size_t coll_bytes(int n)
{
    return SHM_LINE + control_slots_bytes(n) + small_buffers_bytes(n) + eager_buffers_bytes(n) +
           (size_t)n * COLL_FRAGMENTS * (fragment_bytes(n) + fragment_bytes(n) / 2);
}

char *coll_fragment_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    size_t span = segment->fragment_bytes + segment->fragment_bytes / 2;
    return segment->fragments + ((size_t)rank * COLL_FRAGMENTS + step % COLL_FRAGMENTS) * span;
}

struct coll_slot *coll_slot_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    return (struct coll_slot *)(void *)segment->slots + (size_t)rank * COLL_SLOTS + step % COLL_SLOTS;
}

char *coll_small_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    return segment->small_buffers + ((size_t)rank * COLL_SMALL_BUFFERS + step % COLL_SMALL_BUFFERS) * COLL_SMALL;
}

char *coll_eager_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    return segment->eager_buffers +
           ((size_t)rank * COLL_EAGER_BUFFERS + step % COLL_EAGER_BUFFERS) * segment->eager_bytes;
}

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

void coll_open(struct coll_segment *segment, struct shm *shm, int index, int32_t rank, int32_t n,
               const int32_t *global_ranks)
{
    TAILQ_INIT(&segment->ops);
    segment->state = COLL_NONE;
    if (index < 0 || index >= SHM_SEGMENTS || !share_memory(shm, n, global_ranks)) return;
    if (!coll_directory_has(shm, index)) return;
    *segment = (struct coll_segment){.shm = shm, .host = shm->config.host, .n = n, .rank = rank, .index = index};
    TAILQ_INIT(&segment->ops);
    segment->local_rank = malloc((size_t)n * sizeof *segment->local_rank);
    segment->spare = calloc(1, sizeof *segment->spare);
    if (segment->local_rank == NULL || segment->spare == NULL)
        return; /* its operations fail, which the other ranks notice */
    for (int i = 0; i < n; i++) segment->local_rank[i] = shm->local_rank_of[global_ranks[i]];
    segment->cache_words = shm_coll_at(shm, segment->index);
    segment->slots = (char *)segment->cache_words + SHM_LINE;
    segment->eager_bytes = eager_bytes(shm->n);
    segment->small_buffers = segment->slots + control_slots_bytes(shm->n);
    segment->eager_buffers = segment->small_buffers + small_buffers_bytes(shm->n);
    segment->fragments = segment->eager_buffers + eager_buffers_bytes(shm->n);
    segment->fragment_bytes = fragment_bytes(shm->n);
    segment->next = 1;
    segment->since_async = PATIENCE;
    segment->state = COLL_READY;
}

void coll_close(struct coll_segment *segment)
{
    struct coll_op *op;
    if (segment->shm == NULL) return;
    while ((op = TAILQ_FIRST(&segment->ops)) != NULL) coll_cancel(segment, op->request);
    coll_directory_leave(segment->shm, segment->index, segment->n);
    free(segment->local_rank);
    free(segment->spare);
    free(segment->scratch);
    coll_direct_free(segment);
    *segment = (struct coll_segment){0};
    TAILQ_INIT(&segment->ops);
}

/* ---- steps ------------------------------------------------------------------------------------------------- */

bool coll_has_posted(const struct coll_segment *segment, int rank, uint64_t step)
{
    /* acquire: makes the control slot's contents visible with its step */
    return atomic_load_explicit(&coll_slot_of(segment, rank, step)->step, memory_order_acquire) >> 1 >= step;
}

static uint64_t step_of(const struct coll_op *op)
{
    return op->first + (uint64_t)op->at;
}

/* Returns the next step to post. */
static uint64_t next_step(const struct coll_op *op)
{
    return op->first + (uint64_t)op->posted;
}

static bool is_posted(const struct coll_op *op)
{
    return op->posted > op->at;
}

/* Returns the step that all ranks must have posted before the next one: see coll.h. */
static uint64_t required_step(const struct coll_op *op)
{
    return next_step(op) < op->depth ? 0 : next_step(op) - op->depth + 1;
}

/* Returns the step to wait for before that.  A waiting rank lets the others come closer, so that it need not check and
 * wait at each of the next steps. */
static uint64_t awaited_step(const struct coll_op *op)
{
    uint64_t before = required_step(op);
    return before == 0 || op->depth <= COLL_EAGER_BUFFERS ? before : before + op->depth / 2;
}

static void post_step(struct coll_segment *segment, struct coll_op *op)
{
    struct coll_slot *slot = coll_slot_of(segment, segment->rank, next_step(op));
    if (op->large)
        coll_direct_post(segment, op);
    else if (!op->piped)
        coll_eager_post(segment, op);
    else if (op->posted > 0 || !op->shows || !coll_shared_declare(segment, op))
        coll_store_fragment(segment, op);
    slot->fingerprint = op->request->fingerprint;
    uint64_t step = next_step(op) << 1 | (segment->since_async == PATIENCE);
    atomic_store_explicit(&slot->step, step, memory_order_release); /* publishes the control slot's contents */
    for (int i = 0; i < segment->n; i++)
        if (i != segment->rank) shm_wake(segment->shm, segment->local_rank[i]);
    op->posted++;
}

static void begin_step(const struct coll_segment *segment, struct coll_op *op)
{
    op->arrived = false;
    coll_set_awaited(segment, op);
    op->peer = op->awaits_from;
}

static void recycle(struct coll_segment *segment, struct coll_op *op)
{
    if (segment->spare == NULL)
        segment->spare = op;
    else
        free(op);
}

static void finish(struct coll_segment *segment, struct coll_op *op)
{
    TAILQ_REMOVE(&segment->ops, op, link);
    recycle(segment, op);
    if (!TAILQ_EMPTY(&segment->ops) || !segment->linked) return;
    LIST_REMOVE(segment, link);
    segment->linked = false;
}

int coll_lost(const struct coll_segment *segment, int rank)
{
    const struct shm_peer *peer = &segment->shm->peer[segment->local_rank[rank]];
    if (!peer->lost) return TUTTI_OK;
    return segment->host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: %s", peer->rank, peer->why);
}

/* True if the operation waits for the rank: to post this step or, if this rank's control slot is still in use, to
 * finish reading it. */
static bool awaits(const struct coll_segment *segment, const struct coll_op *op, int rank)
{
    uint64_t step = is_posted(op) ? step_of(op) : awaited_step(op);
    if (rank == segment->rank) return false;
    if (is_posted(op) && !coll_awaits_rank(op, rank)) return false;
    return !coll_has_posted(segment, rank, step);
}

/* Returns 1 if all awaited ranks may still arrive, or an error if one is lost, whichever others are late. */
static int check_lost(const struct coll_segment *segment, const struct coll_op *op)
{
    for (int i = 0; segment->shm->has_lost && i < segment->n; i++) {
        int status = awaits(segment, op, i) ? coll_lost(segment, i) : TUTTI_OK;
        if (status != TUTTI_OK) return status;
    }
    return 1;
}

/* Checks whether this rank's control slot and fragment for the next step may be filled: see coll.h.  Returns TUTTI_OK
 * if so, 1 if not yet, or an error if never. */
static int check_slot_free(struct coll_segment *segment, const struct coll_op *op)
{
    if (required_step(op) <= segment->all_in) return TUTTI_OK;
    for (int i = 0; i < segment->n; i++) /* acquire: the rank's reads of the slot come before this rank's writes */
        if (i != segment->rank && !coll_has_posted(segment, i, awaited_step(op))) return check_lost(segment, op);
    segment->all_in = awaited_step(op);
    return TUTTI_OK;
}

/* Checks one rank.  Returns TUTTI_OK if it has arrived and agrees, 1 if it has not arrived, or an error. */
static int check_arrival(struct coll_segment *segment, const struct coll_op *op, int rank)
{
    const struct coll_slot *slot = coll_slot_of(segment, rank, step_of(op));
    if (!coll_has_posted(segment, rank, step_of(op))) return check_lost(segment, op);
    if (slot->fingerprint == op->request->fingerprint) return TUTTI_OK;
    op->request->source = rank;
    op->request->found_fingerprint = slot->fingerprint;
    return segment->host->error(TUTTI_ERR_MISMATCH, "rank %d is in another operation or passed other arguments",
                                segment->shm->peer[segment->local_rank[rank]].rank);
}

static int await_arrivals(struct coll_segment *segment, struct coll_op *op)
{
    for (; op->peer < op->awaits_to; op->peer++) {
        if (op->peer == segment->rank) continue;
        int status = check_arrival(segment, op, op->peer);
        if (status != TUTTI_OK) return status;
    }
    if (op->awaits_to - op->awaits_from == segment->n) segment->all_in = step_of(op);
    op->arrived = true;
    op->peer = 0;
    op->done = 0;
    return TUTTI_OK;
}

/* Data read from a peer's memory is valid if all peers are still alive: then no pid was reused meanwhile.  No rank can
 * have completed the operation yet, so none may have exited. */
static int check_all_alive(struct coll_segment *segment)
{
    shm_check_liveness(segment->shm); /* includes an acquire fence: see withdraw_steps */
    for (int i = 0; i < segment->n; i++) {
        int status = i == segment->rank ? TUTTI_OK : coll_lost(segment, i);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

/* In the last step all ranks have read what they need. */
static bool is_last(const struct coll_op *op)
{
    return op->large && op->at == op->steps - 1;
}

static int run_step(struct coll_segment *segment, struct coll_op *op)
{
    if (op->large) return is_last(op) ? TUTTI_OK : coll_direct_run(segment, op);
    if (op->piped)
        coll_pipelined_run(segment, op);
    else
        coll_eager_run(segment, op);
    if (op->split) coll_cache_lockstep(segment, op);
    return TUTTI_OK;
}

/* Assigns steps when an operation starts to run: only then is it known how many the previous one took. */
static int start(struct coll_segment *segment, struct coll_op *op)
{
    int status = op->large ? coll_direct_prepare(segment, op) : TUTTI_OK;
    if (status == TUTTI_OK) op->first = segment->next;
    return status;
}

/* Switches to the direct path: the data can be, or is better, read in place. */
static int switch_to_direct(struct coll_segment *segment, struct coll_op *op)
{
    int status = coll_direct_prepare(segment, op);
    if (status != TUTTI_OK) return status;
    op->call = 0; /* no longer what coll_describe computed for this call */
    op->piped = op->shows = op->either = op->may_split = false;
    op->large = true;
    coll_set_steps(segment, op);
    coll_set_awaited(segment, op);
    return TUTTI_OK;
}

/* All ranks have declared whether their memory is shared. */
static int continue_after_probe(struct coll_segment *segment, struct coll_op *op)
{
    if (coll_shared_by_all(segment, op)) return switch_to_direct(segment, op);
    op->ahead = op->split ? COLL_AHEAD : 0;
    return TUTTI_OK;
}

/* A split operation alternates between both ranks to its end.  If a rank started one and then computed, the other would
 * wait, while otherwise it would find all data at once.  Operations are therefore split only while both ranks wait for
 * all of them.  Both must decide alike, so they use what both declared in the step before the operation's first, which
 * this rank has seen.  The first operation has no such step. */
static bool both_wait(const struct coll_segment *segment, const struct coll_op *op)
{
    uint64_t before = op->first - 1, waits = before << 1 | 1;
    for (int i = 0; i < segment->n; i++) /* relaxed: the step was acquired before */
        if (atomic_load_explicit(&coll_slot_of(segment, i, before)->step, memory_order_relaxed) != waits) return false;
    return true;
}

/* Chooses the path if there are several. */
static int choose_path(struct coll_segment *segment, struct coll_op *op)
{
    op->far = op->either && !coll_cache_is_shared(segment, op);
    if (op->far) return op->reads ? switch_to_direct(segment, op) : TUTTI_OK;
    if (!op->may_split || !both_wait(segment, op)) return TUTTI_OK;
    op->call = 0;
    coll_use_lockstep(segment, op);
    return TUTTI_OK;
}

/* Posts the current step and, if possible, the following ones. */
static int post_steps(struct coll_segment *segment, struct coll_op *op, bool *moved)
{
    while (op->posted <= op->at + op->ahead && op->posted < op->steps) {
        int status = check_slot_free(segment, op);
        if (status == 1 && is_posted(op)) return TUTTI_OK;
        if (status == TUTTI_OK && op->posted == 0 && (op->either || op->may_split)) {
            status = choose_path(segment, op);
            begin_step(segment, op);
        }
        if (status == TUTTI_OK && is_last(op)) status = check_all_alive(segment);
        if (status != TUTTI_OK) return status;
        post_step(segment, op);
        *moved = true;
    }
    return TUTTI_OK;
}

static int run_steps(struct coll_segment *segment, struct coll_op *op, bool *moved)
{
    if (op->first == 0) {
        int status = start(segment, op);
        if (status != TUTTI_OK) return status;
        begin_step(segment, op);
    }
    for (bool worked = false;; worked = op->piped && !op->split) {
        int status = post_steps(segment, op, moved);
        if (status != TUTTI_OK) return status;
        if (!op->arrived) {
            status = await_arrivals(segment, op);
            if (status != TUTTI_OK) return status;
            *moved = true;
            if (op->shows && op->at == 0) status = continue_after_probe(segment, op);
            op->arrived = status == TUTTI_OK; /* a failure is found again: see coll_begin */
            if (status != TUTTI_OK) return status;
        }
        if (worked) return 1; /* one chunk per call */
        status = run_step(segment, op);
        if (status < 0) return status;
        *moved = true;
        if (status == 1) return 1;
        if (++op->at == op->steps) return TUTTI_OK;
        begin_step(segment, op);
    }
}

/* Returns TUTTI_OK if the operation is complete, 1 if it is pending, or an error.  *moved: something was done. */
static int advance(struct coll_segment *segment, struct coll_op *op, bool *moved)
{
    int status = run_steps(segment, op, moved);
    if (status != 1 && op->first != 0) segment->next = op->first + (uint64_t)op->steps;
    return status;
}

/* ---- operations -------------------------------------------------------------------------------------------- */

/* Describes the operation, reusing the last description if it is the same call, and resets its progress. */
static bool describe_op(const struct coll_segment *segment, const tutti_op *wanted, struct coll_op *op)
{
    if (op->call == 0 || op->call != wanted->call) {
        *op = (struct coll_op){.call = 0};
        if (!coll_describe(segment, wanted, op)) return false;
        op->call = wanted->call;
    }
    op->first = 0;
    op->at = op->posted = op->ahead = 0;
    op->arrived = false;
    return true;
}

int coll_begin(struct coll_segment *segment, const tutti_op *wanted, tutti_request *request, struct coll_list *running)
{
    if (segment->state != COLL_READY) return TUTTI_ERR_UNSUPPORTED;
    struct coll_op *op = segment->spare != NULL ? segment->spare : calloc(1, sizeof *op);
    if (op == NULL) return segment->host->error(TUTTI_ERR_NO_MEMORY, "no memory for an operation");
    segment->spare = NULL;
    if (!describe_op(segment, wanted, op)) {
        recycle(segment, op);
        return TUTTI_ERR_UNSUPPORTED;
    }
    op->request = request;
    segment->since_async = wanted->async ? 0 : segment->since_async < PATIENCE ? segment->since_async + 1 : PATIENCE;
    bool moved = false, runs = TAILQ_EMPTY(&segment->ops);
    int status = runs ? advance(segment, op, &moved) : 1;
    /* The other ranks often arrive within a few polls, which saves a progress call and a completion. */
    bool looks = runs && status == 1 && !wanted->async && !op->large;
    for (int i = 0; looks && i < segment->shm->polls && status == 1; i++) {
        shm_pause(segment->shm);
        status = advance(segment, op, &moved);
    }
    if (looks) shm_polled(segment->shm, status != 1);
    if (status == TUTTI_OK) {
        recycle(segment, op);
        return TUTTI_REQUEST_DONE;
    }
    TAILQ_INSERT_TAIL(&segment->ops, op, link);
    /* A failure belongs to the operation, not to the call: the next progress call finds it again. */
    if (!segment->linked) LIST_INSERT_HEAD(running, segment, link);
    segment->linked = true;
    return TUTTI_REQUEST_PENDING;
}

const char *coll_explain(const struct coll_segment *segment, const tutti_op *op)
{
    struct coll_op made = {0};
    if (segment->state != COLL_READY || !coll_describe(segment, op, &made)) return NULL;
    if (made.large) return "each rank reads the other ranks' memory directly";
    if (made.may_split && !made.piped)
        return "through shared memory, in chunks while both ranks wait, otherwise in one step";
    if (made.either && made.reads)
        return "in chunks through shared memory, or by reading the other rank's memory if that is faster";
    if (made.shows) return "through shared memory, in chunks, or in place if allocated by tutti_alloc";
    if (made.piped) return "through shared memory, in chunks";
    return "through shared memory, in one step";
}

/* Withdraws the operation's steps, so that data read afterwards no longer counts.  Peers check this rank in the last
 * step after they have read, with a fence in between (check_all_alive).  The caller's later writes come after these
 * stores, because of the fence here.  A peer that has read any of them finds the step withdrawn. */
static void withdraw_steps(struct coll_segment *segment, const struct coll_op *op)
{
    if (op->first == 0) return; /* it has not started */
    if (op->large || op->piped) segment->shm->arena.is_read = true;
    for (int i = 0; i < op->steps; i++) {
        struct coll_slot *slot = coll_slot_of(segment, segment->rank, op->first + (uint64_t)i);
        if (atomic_load_explicit(&slot->step, memory_order_relaxed) >> 1 < op->first) continue; /* not posted */
        atomic_store_explicit(&slot->step, 0, memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_release);
}

bool coll_cancel(struct coll_segment *segment, tutti_request *request)
{
    struct coll_op *op;
    TAILQ_FOREACH(op, &segment->ops, link)
    if (op->request == request) break;
    if (op == NULL) return false;
    withdraw_steps(segment, op);
    finish(segment, op);
    segment->state = COLL_NONE; /* the steps are out of order now; the group has failed */
    return true;
}

static int run(struct coll_segment *segment)
{
    int moves = 0;
    struct coll_op *op;
    while ((op = TAILQ_FIRST(&segment->ops)) != NULL) {
        bool moved = false;
        int status = advance(segment, op, &moved);
        moves += moved;
        if (status == 1) break;
        tutti_request *request = op->request;
        bool linked = segment->linked;
        /* On a mismatch each peer must find the difference itself; none reads memory before it has. */
        if (status != TUTTI_OK && status != TUTTI_ERR_MISMATCH) withdraw_steps(segment, op);
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
        moves += run(segment);
    }
    return moves;
}

static bool is_ready(struct coll_segment *segment, const struct coll_op *op)
{
    if (!is_posted(op)) return check_slot_free(segment, op) != 1;
    if (op->arrived) return true; /* in the middle of its blocks */
    return coll_has_posted(segment, op->peer, step_of(op));
}

bool coll_is_ready(const struct coll_list *running)
{
    struct coll_segment *segment;
    LIST_FOREACH(segment, running, link)
    if (is_ready(segment, TAILQ_FIRST(&segment->ops))) return true;
    return false;
}

void coll_awaits(const struct coll_segment *segment, const tutti_request *request, bool *ranks)
{
    const struct coll_op *op = TAILQ_FIRST(&segment->ops);
    if (op == NULL || op->request != request) return; /* it waits for an earlier operation */
    for (int i = 0; i < segment->n; i++)
        if (awaits(segment, op, i)) ranks[i] = true;
}
