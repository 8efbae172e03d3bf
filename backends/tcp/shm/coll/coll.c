/* Collective segments (boards): opening, steps, and the queue of operations. */
#include "tcp/shm/coll/coll.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROOM_MOST = 16 << 10,
    ROOM_LEAST = 4 << 10,
    TRAY_MOST = 256 << 10,
    TRAY_LEAST = SHM_SEATS * SHM_LINE / 2,
    ROOM_RANKS = 8
};

enum { PATIENCE = 64 }; /* consecutive blocking operations before a rank declares that it waits */

/* ---- layout ------------------------------------------------------------------------------------------------ */

static size_t room_bytes(int n)
{
    size_t room = ROOM_MOST;
    for (int many = ROOM_RANKS; many < n && room > ROOM_LEAST; many *= 2) room /= 2;
    return room;
}

static size_t slots_bytes(int n)
{
    return (size_t)n * BOARD_DEPTH * sizeof(struct board_cell);
}

static size_t slots_for(int n)
{
    return (size_t)n * BOARD_SLOTS * BOARD_SLOT;
}

static size_t rooms_for(int n)
{
    return (size_t)n * BOARD_ROOMS * room_bytes(n);
}

/* Two trays fit the second-level cache.  With many ranks each tray is smaller, but holds at least a line
 * (parts.h) per rank.  A segment grows no faster than the number of ranks. */
static size_t tray_bytes(int n)
{
    size_t tray = TRAY_MOST;
    for (int many = ROOM_RANKS; many < n; many *= 2) tray /= 2;
    return tray > TRAY_LEAST ? tray : TRAY_LEAST;
}

size_t board_bytes(int n)
{
    return SHM_LINE + slots_bytes(n) + slots_for(n) + rooms_for(n) +
           (size_t)n * BOARD_TRAYS * (tray_bytes(n) + tray_bytes(n) / 2);
}

char *board_tray_of(const struct board *board, int rank, uint64_t step)
{
    size_t span = board->tray + board->tray / 2;
    return board->trays + ((size_t)rank * BOARD_TRAYS + step % BOARD_TRAYS) * span;
}

struct board_cell *board_cell_of(const struct board *board, int rank, uint64_t step)
{
    return (struct board_cell *)(void *)board->base + (size_t)rank * BOARD_DEPTH + step % BOARD_DEPTH;
}

char *board_slot_of(const struct board *board, int rank, uint64_t step)
{
    return board->slots + ((size_t)rank * BOARD_SLOTS + step % BOARD_SLOTS) * BOARD_SLOT;
}

char *board_room_of(const struct board *board, int rank, uint64_t step)
{
    return board->rooms + ((size_t)rank * BOARD_ROOMS + step % BOARD_ROOMS) * board->room;
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

static bool share_memory(const struct shm *shm, int32_t n, const int32_t *global_ranks)
{
    if (shm == NULL || n < 2 || n > shm->n) return false;
    for (int i = 0; i < n; i++)
        if (shm->seat_of[global_ranks[i]] < 0) return false;
    return true;
}

int board_reserve(struct shm *shm, int32_t n, const int32_t *global_ranks)
{
    return share_memory(shm, n, global_ranks) ? board_directory_take(shm, n) : BOARD_ABSENT;
}

void board_open(struct board *board, struct shm *shm, int index, int32_t rank, int32_t n, const int32_t *global_ranks)
{
    TAILQ_INIT(&board->ops);
    board->state = BOARD_NONE;
    if (index < 0 || index >= SHM_BOARDS || !share_memory(shm, n, global_ranks)) return;
    if (!board_directory_has(shm, index)) return;
    *board = (struct board){.shm = shm, .host = shm->config.host, .n = n, .rank = rank, .index = index};
    TAILQ_INIT(&board->ops);
    board->seat = malloc((size_t)n * sizeof *board->seat);
    board->spare = calloc(1, sizeof *board->spare);
    if (board->seat == NULL || board->spare == NULL) return; /* its operations fail, which the other ranks notice */
    for (int i = 0; i < n; i++) board->seat[i] = shm->seat_of[global_ranks[i]];
    board->words = shm_board_at(shm, board->index);
    board->base = (char *)board->words + SHM_LINE;
    board->room = room_bytes(shm->n);
    board->slots = board->base + slots_bytes(shm->n);
    board->rooms = board->slots + slots_for(shm->n);
    board->trays = board->rooms + rooms_for(shm->n);
    board->tray = tray_bytes(shm->n);
    board->next = 1;
    board->since_async = PATIENCE;
    board->state = BOARD_READY;
}

void board_close(struct board *board)
{
    struct board_op *op;
    if (board->shm == NULL) return;
    while ((op = TAILQ_FIRST(&board->ops)) != NULL) board_cancel(board, op->request);
    board_directory_leave(board->shm, board->index, board->n);
    free(board->seat);
    free(board->spare);
    free(board->scratch);
    board_free_result(board);
    *board = (struct board){0};
    TAILQ_INIT(&board->ops);
}

/* ---- steps ------------------------------------------------------------------------------------------------- */

bool board_has_entered(const struct board *board, int rank, uint64_t step)
{
    /* acquire: makes the control slot's contents visible with its step */
    return atomic_load_explicit(&board_cell_of(board, rank, step)->step, memory_order_acquire) >> 1 >= step;
}

static uint64_t step_of(const struct board_op *op)
{
    return op->first + (uint64_t)op->at;
}

/* Returns the next step to post. */
static uint64_t next_step(const struct board_op *op)
{
    return op->first + (uint64_t)op->entered;
}

static bool is_entered(const struct board_op *op)
{
    return op->entered > op->at;
}

/* Returns the step that all ranks must have posted before the next one: see coll.h. */
static uint64_t required_step(const struct board_op *op)
{
    return next_step(op) < op->depth ? 0 : next_step(op) - op->depth + 1;
}

/* Returns the step to wait for before that.  A waiting rank lets the others come closer, so that it need not check and
 * wait at each of the next steps. */
static uint64_t awaited_step(const struct board_op *op)
{
    uint64_t before = required_step(op);
    return before == 0 || op->depth <= BOARD_ROOMS ? before : before + op->depth / 2;
}

static void post_step(struct board *board, struct board_op *op)
{
    struct board_cell *cell = board_cell_of(board, board->rank, next_step(op));
    if (op->large)
        board_put_large(board, op);
    else if (!op->piped)
        board_put_small(board, op);
    else if (op->entered > 0 || !op->shows || !board_show(board, op))
        board_fill(board, op);
    cell->fingerprint = op->request->fingerprint;
    uint64_t step = next_step(op) << 1 | (board->since_async == PATIENCE);
    atomic_store_explicit(&cell->step, step, memory_order_release); /* publishes the control slot's contents */
    for (int i = 0; i < board->n; i++)
        if (i != board->rank) shm_wake(board->shm, board->seat[i]);
    op->entered++;
}

static void begin_step(const struct board *board, struct board_op *op)
{
    op->met = false;
    board_set_meets(board, op);
    op->peer = op->meets_from;
}

static void recycle(struct board *board, struct board_op *op)
{
    if (board->spare == NULL)
        board->spare = op;
    else
        free(op);
}

static void finish(struct board *board, struct board_op *op)
{
    TAILQ_REMOVE(&board->ops, op, link);
    recycle(board, op);
    if (!TAILQ_EMPTY(&board->ops) || !board->linked) return;
    LIST_REMOVE(board, link);
    board->linked = false;
}

int board_lost(const struct board *board, int rank)
{
    const struct shm_peer *peer = &board->shm->peer[board->seat[rank]];
    if (!peer->lost) return TUTTI_OK;
    return board->host->error(TUTTI_ERR_PEER_LOST, "rank %d is lost: %s", peer->rank, peer->why);
}

/* True if the operation waits for the rank: to post this step or, if this rank's control slot is still in use, to
 * finish reading it. */
static bool awaits(const struct board *board, const struct board_op *op, int rank)
{
    uint64_t step = is_entered(op) ? step_of(op) : awaited_step(op);
    if (rank == board->rank) return false;
    if (is_entered(op) && !board_meets(op, rank)) return false;
    return !board_has_entered(board, rank, step);
}

/* Returns 1 if all awaited ranks may still arrive, or an error if one is lost, whichever others are late. */
static int check_lost(const struct board *board, const struct board_op *op)
{
    for (int i = 0; board->shm->has_lost && i < board->n; i++) {
        int status = awaits(board, op, i) ? board_lost(board, i) : TUTTI_OK;
        if (status != TUTTI_OK) return status;
    }
    return 1;
}

/* Checks whether this rank's control slot and tray for the next step may be filled: see coll.h.  Returns TUTTI_OK if
 * so, 1 if not yet, or an error if never. */
static int check_slot_free(struct board *board, const struct board_op *op)
{
    if (required_step(op) <= board->all_in) return TUTTI_OK;
    for (int i = 0; i < board->n; i++) /* acquire: the rank's reads of the slot come before this rank's writes */
        if (i != board->rank && !board_has_entered(board, i, awaited_step(op))) return check_lost(board, op);
    board->all_in = awaited_step(op);
    return TUTTI_OK;
}

/* Checks one rank.  Returns TUTTI_OK if it has arrived and agrees, 1 if it has not arrived, or an error. */
static int check_arrival(struct board *board, const struct board_op *op, int rank)
{
    const struct board_cell *cell = board_cell_of(board, rank, step_of(op));
    if (!board_has_entered(board, rank, step_of(op))) return check_lost(board, op);
    if (cell->fingerprint == op->request->fingerprint) return TUTTI_OK;
    op->request->source = rank;
    op->request->found_fingerprint = cell->fingerprint;
    return board->host->error(TUTTI_ERR_MISMATCH, "rank %d is in another operation or passed other arguments",
                              board->shm->peer[board->seat[rank]].rank);
}

static int await_arrivals(struct board *board, struct board_op *op)
{
    for (; op->peer < op->meets_to; op->peer++) {
        if (op->peer == board->rank) continue;
        int status = check_arrival(board, op, op->peer);
        if (status != TUTTI_OK) return status;
    }
    if (op->meets_to - op->meets_from == board->n) board->all_in = step_of(op);
    op->met = true;
    op->peer = 0;
    op->done = 0;
    return TUTTI_OK;
}

/* Data read from a peer's memory is valid if all peers are still alive: then no pid was reused meanwhile.  No rank can
 * have completed the operation yet, so none may have exited. */
static int check_all_alive(struct board *board)
{
    shm_look_at_lives(board->shm); /* includes an acquire fence: see withdraw_steps */
    for (int i = 0; i < board->n; i++) {
        int status = i == board->rank ? TUTTI_OK : board_lost(board, i);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

/* In the last step all ranks have read what they need. */
static bool is_last(const struct board_op *op)
{
    return op->large && op->at == op->steps - 1;
}

static int run_step(struct board *board, struct board_op *op)
{
    if (op->large) return is_last(op) ? TUTTI_OK : board_work_large(board, op);
    if (op->piped)
        board_work_pipe(board, op);
    else
        board_work_small(board, op);
    if (op->split) board_has_split(board, op);
    return TUTTI_OK;
}

/* Assigns steps when an operation starts to run: only then is it known how many the previous one took. */
static int start(struct board *board, struct board_op *op)
{
    int status = op->large ? board_prepare_large(board, op) : TUTTI_OK;
    if (status == TUTTI_OK) op->first = board->next;
    return status;
}

/* Switches to the direct path: the data can be, or is better, read in place. */
static int switch_to_direct(struct board *board, struct board_op *op)
{
    int status = board_prepare_large(board, op);
    if (status != TUTTI_OK) return status;
    op->call = 0; /* no longer what board_takes computed for this call */
    op->piped = op->shows = op->either = op->may_split = false;
    op->large = true;
    board_set_steps(board, op);
    board_set_meets(board, op);
    return TUTTI_OK;
}

/* All ranks have declared whether their memory is shared. */
static int continue_after_probe(struct board *board, struct board_op *op)
{
    if (board_is_shared(board, op)) return switch_to_direct(board, op);
    op->ahead = op->split ? BOARD_AHEAD : 0;
    return TUTTI_OK;
}

/* A split operation alternates between both ranks to its end.  If a rank started one and then computed, the other would
 * wait, while otherwise it would find all data at once.  Operations are therefore split only while both ranks wait for
 * all of them.  Both must decide alike, so they use what both declared in the step before the operation's first, which
 * this rank has seen.  The first operation has no such step. */
static bool both_wait(const struct board *board, const struct board_op *op)
{
    uint64_t before = op->first - 1, waits = before << 1 | 1;
    for (int i = 0; i < board->n; i++) /* relaxed: the step was acquired before */
        if (atomic_load_explicit(&board_cell_of(board, i, before)->step, memory_order_relaxed) != waits) return false;
    return true;
}

/* Chooses the path if there are several. */
static int choose_path(struct board *board, struct board_op *op)
{
    op->far = op->either && !board_goes_near(board, op);
    if (op->far) return op->reads ? switch_to_direct(board, op) : TUTTI_OK;
    if (!op->may_split || !both_wait(board, op)) return TUTTI_OK;
    op->call = 0;
    board_split(board, op);
    return TUTTI_OK;
}

/* Posts the current step and, if possible, the following ones. */
static int post_steps(struct board *board, struct board_op *op, bool *moved)
{
    while (op->entered <= op->at + op->ahead && op->entered < op->steps) {
        int status = check_slot_free(board, op);
        if (status == 1 && is_entered(op)) return TUTTI_OK;
        if (status == TUTTI_OK && op->entered == 0 && (op->either || op->may_split)) {
            status = choose_path(board, op);
            begin_step(board, op);
        }
        if (status == TUTTI_OK && is_last(op)) status = check_all_alive(board);
        if (status != TUTTI_OK) return status;
        post_step(board, op);
        *moved = true;
    }
    return TUTTI_OK;
}

static int run_steps(struct board *board, struct board_op *op, bool *moved)
{
    if (op->first == 0) {
        int status = start(board, op);
        if (status != TUTTI_OK) return status;
        begin_step(board, op);
    }
    for (bool worked = false;; worked = op->piped && !op->split) {
        int status = post_steps(board, op, moved);
        if (status != TUTTI_OK) return status;
        if (!op->met) {
            status = await_arrivals(board, op);
            if (status != TUTTI_OK) return status;
            *moved = true;
            if (op->shows && op->at == 0) status = continue_after_probe(board, op);
            op->met = status == TUTTI_OK; /* a failure is found again: see board_begin */
            if (status != TUTTI_OK) return status;
        }
        if (worked) return 1; /* one chunk per call */
        status = run_step(board, op);
        if (status < 0) return status;
        *moved = true;
        if (status == 1) return 1;
        if (++op->at == op->steps) return TUTTI_OK;
        begin_step(board, op);
    }
}

/* Returns TUTTI_OK if the operation is complete, 1 if it is pending, or an error.  *moved: something was done. */
static int advance(struct board *board, struct board_op *op, bool *moved)
{
    int status = run_steps(board, op, moved);
    if (status != 1 && op->first != 0) board->next = op->first + (uint64_t)op->steps;
    return status;
}

/* ---- operations -------------------------------------------------------------------------------------------- */

/* Describes the operation, reusing the last description if it is the same call, and resets its progress. */
static bool describe_op(const struct board *board, const tutti_op *wanted, struct board_op *op)
{
    if (op->call == 0 || op->call != wanted->call) {
        *op = (struct board_op){.call = 0};
        if (!board_takes(board, wanted, op)) return false;
        op->call = wanted->call;
    }
    op->first = 0;
    op->at = op->entered = op->ahead = 0;
    op->met = false;
    return true;
}

int board_begin(struct board *board, const tutti_op *wanted, tutti_request *request, struct board_list *running)
{
    if (board->state != BOARD_READY) return TUTTI_ERR_UNSUPPORTED;
    struct board_op *op = board->spare != NULL ? board->spare : calloc(1, sizeof *op);
    if (op == NULL) return board->host->error(TUTTI_ERR_NO_MEMORY, "no memory for an operation");
    board->spare = NULL;
    if (!describe_op(board, wanted, op)) {
        recycle(board, op);
        return TUTTI_ERR_UNSUPPORTED;
    }
    op->request = request;
    board->since_async = wanted->async ? 0 : board->since_async < PATIENCE ? board->since_async + 1 : PATIENCE;
    bool moved = false, runs = TAILQ_EMPTY(&board->ops);
    int status = runs ? advance(board, op, &moved) : 1;
    /* The other ranks often arrive within a few polls, which saves a progress call and a completion. */
    bool looks = runs && status == 1 && !wanted->async && !op->large;
    for (int i = 0; looks && i < board->shm->looks && status == 1; i++) {
        shm_pause(board->shm);
        status = advance(board, op, &moved);
    }
    if (looks) shm_looked(board->shm, status != 1);
    if (status == TUTTI_OK) {
        recycle(board, op);
        return TUTTI_REQUEST_DONE;
    }
    TAILQ_INSERT_TAIL(&board->ops, op, link);
    /* A failure belongs to the operation, not to the call: the next progress call finds it again. */
    if (!board->linked) LIST_INSERT_HEAD(running, board, link);
    board->linked = true;
    return TUTTI_REQUEST_PENDING;
}

const char *board_explain(const struct board *board, const tutti_op *op)
{
    struct board_op made = {0};
    if (board->state != BOARD_READY || !board_takes(board, op, &made)) return NULL;
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
static void withdraw_steps(struct board *board, const struct board_op *op)
{
    if (op->first == 0) return; /* it has not started */
    if (op->large || op->piped) board->shm->arena.is_read = true;
    for (int i = 0; i < op->steps; i++) {
        struct board_cell *cell = board_cell_of(board, board->rank, op->first + (uint64_t)i);
        if (atomic_load_explicit(&cell->step, memory_order_relaxed) >> 1 < op->first) continue; /* not posted */
        atomic_store_explicit(&cell->step, 0, memory_order_relaxed);
    }
    atomic_thread_fence(memory_order_release);
}

bool board_cancel(struct board *board, tutti_request *request)
{
    struct board_op *op;
    TAILQ_FOREACH(op, &board->ops, link)
    if (op->request == request) break;
    if (op == NULL) return false;
    withdraw_steps(board, op);
    finish(board, op);
    board->state = BOARD_NONE; /* the steps are out of order now; the group has failed */
    return true;
}

static int run(struct board *board)
{
    int moves = 0;
    struct board_op *op;
    while ((op = TAILQ_FIRST(&board->ops)) != NULL) {
        bool moved = false;
        int status = advance(board, op, &moved);
        moves += moved;
        if (status == 1) break;
        tutti_request *request = op->request;
        bool linked = board->linked;
        /* On a mismatch each peer must find the difference itself; none reads memory before it has. */
        if (status != TUTTI_OK && status != TUTTI_ERR_MISMATCH) withdraw_steps(board, op);
        finish(board, op);
        board->host->complete(request, status);
        moves++;
        if (status != TUTTI_OK || !linked) break;
    }
    return moves;
}

int board_progress(struct board_list *running)
{
    int moves = 0;
    struct board *board, *next;
    for (board = LIST_FIRST(running); board != NULL; board = next) {
        next = LIST_NEXT(board, link);
        moves += run(board);
    }
    return moves;
}

static bool is_ready(struct board *board, const struct board_op *op)
{
    if (!is_entered(op)) return check_slot_free(board, op) != 1;
    if (op->met) return true; /* in the middle of its blocks */
    return board_has_entered(board, op->peer, step_of(op));
}

bool board_is_ready(const struct board_list *running)
{
    struct board *board;
    LIST_FOREACH(board, running, link)
    if (is_ready(board, TAILQ_FIRST(&board->ops))) return true;
    return false;
}

void board_awaits(const struct board *board, const tutti_request *request, bool *ranks)
{
    const struct board_op *op = TAILQ_FIRST(&board->ops);
    if (op == NULL || op->request != request) return; /* it waits for an earlier operation */
    for (int i = 0; i < board->n; i++)
        if (awaits(board, op, i)) ranks[i] = true;
}
