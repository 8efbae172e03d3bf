/* Boards: finding one, steps, the operations' queue. */
#include "board.h"

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

enum { PATIENCE = 64 }; /* operations that a rank has to wait for before it says that it does */

/* ---- layout ------------------------------------------------------------------------------------------------ */

static size_t room_for(int n)
{
    size_t room = ROOM_MOST;
    for (int many = ROOM_RANKS; many < n && room > ROOM_LEAST; many *= 2) room /= 2;
    return room;
}

static size_t cells_for(int n)
{
    return (size_t)n * BOARD_DEPTH * sizeof(struct board_cell);
}

static size_t slots_for(int n)
{
    return (size_t)n * BOARD_SLOTS * BOARD_SLOT;
}

static size_t rooms_for(int n)
{
    return (size_t)n * BOARD_ROOMS * room_for(n);
}

/* Two of them, for a core's second-level cache; less each where there are many, but a line (board_parts.h) for each of
 * these.  A segment grows no faster than the number of ranks. */
static size_t tray_for(int n)
{
    size_t tray = TRAY_MOST;
    for (int many = ROOM_RANKS; many < n; many *= 2) tray /= 2;
    return tray > TRAY_LEAST ? tray : TRAY_LEAST;
}

size_t board_bytes(int n)
{
    return SHM_LINE + cells_for(n) + slots_for(n) + rooms_for(n) +
           (size_t)n * BOARD_TRAYS * (tray_for(n) + tray_for(n) / 2);
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
    if (board->seat == NULL || board->spare == NULL) return; /* its operations fail where the others wait for it */
    for (int i = 0; i < n; i++) board->seat[i] = shm->seat_of[global_ranks[i]];
    board->words = shm_board_at(shm, board->index);
    board->base = (char *)board->words + SHM_LINE;
    board->room = room_for(shm->n);
    board->slots = board->base + cells_for(shm->n);
    board->rooms = board->slots + slots_for(shm->n);
    board->trays = board->rooms + rooms_for(shm->n);
    board->tray = tray_for(shm->n);
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
    /* acquire: the cell's contents come with its step */
    return atomic_load_explicit(&board_cell_of(board, rank, step)->step, memory_order_acquire) >> 1 >= step;
}

static uint64_t step_of(const struct board_op *op)
{
    return op->first + (uint64_t)op->at;
}

/* The step to be entered next. */
static uint64_t step_next(const struct board_op *op)
{
    return op->first + (uint64_t)op->entered;
}

static bool is_entered(const struct board_op *op)
{
    return op->entered > op->at;
}

/* The step that all must have entered before the next one can be: see board.h. */
static uint64_t step_before(const struct board_op *op)
{
    return step_next(op) < op->depth ? 0 : step_next(op) - op->depth + 1;
}

/* The step to wait for before that: who waits lets the others come closer, so that it need not look again, nor wait
 * again, at each of the next steps. */
static uint64_t step_awaited(const struct board_op *op)
{
    uint64_t before = step_before(op);
    return before == 0 || op->depth <= BOARD_ROOMS ? before : before + op->depth / 2;
}

static void enter(struct board *board, struct board_op *op)
{
    struct board_cell *cell = board_cell_of(board, board->rank, step_next(op));
    if (op->large)
        board_put_large(board, op);
    else if (!op->piped)
        board_put_small(board, op);
    else if (op->entered > 0 || !op->shows || !board_show(board, op))
        board_fill(board, op);
    cell->fingerprint = op->request->fingerprint;
    uint64_t step = step_next(op) << 1 | (board->since_async == PATIENCE);
    atomic_store_explicit(&cell->step, step, memory_order_release); /* with the cell's contents */
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

static void give_back(struct board *board, struct board_op *op)
{
    if (board->spare == NULL)
        board->spare = op;
    else
        free(op);
}

static void finish(struct board *board, struct board_op *op)
{
    TAILQ_REMOVE(&board->ops, op, link);
    give_back(board, op);
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

/* Whether the operation waits for the rank: to come to its step or, as long as its own cell is in use, to have done
 * with what is in it. */
static bool awaits(const struct board *board, const struct board_op *op, int rank)
{
    uint64_t step = is_entered(op) ? step_of(op) : step_awaited(op);
    if (rank == board->rank) return false;
    if (is_entered(op) && !board_meets(op, rank)) return false;
    return !board_has_entered(board, rank, step);
}

/* 1: those that the operation waits for may still come; an error: one of them is lost, whoever else is late. */
static int wait_on(const struct board *board, const struct board_op *op)
{
    for (int i = 0; board->shm->has_lost && i < board->n; i++) {
        int status = awaits(board, op, i) ? board_lost(board, i) : TUTTI_OK;
        if (status != TUTTI_OK) return status;
    }
    return 1;
}

/* Whether the own cell, and tray, for the operation's next step may be filled: see board.h.  TUTTI_OK: it may; 1: not
 * yet; an error: never. */
static int find_cell(struct board *board, const struct board_op *op)
{
    if (step_before(op) <= board->all_in) return TUTTI_OK;
    for (int i = 0; i < board->n; i++) /* acquire: the rank's reads of the cell come before ours writes to it */
        if (i != board->rank && !board_has_entered(board, i, step_awaited(op))) return wait_on(board, op);
    board->all_in = step_awaited(op);
    return TUTTI_OK;
}

/* A rank that is in something else, or gone.  TUTTI_OK: it has come, and agrees; 1: it has not come yet. */
static int meet_one(struct board *board, const struct board_op *op, int rank)
{
    const struct board_cell *cell = board_cell_of(board, rank, step_of(op));
    if (!board_has_entered(board, rank, step_of(op))) return wait_on(board, op);
    if (cell->fingerprint == op->request->fingerprint) return TUTTI_OK;
    op->request->source = rank;
    op->request->found_fingerprint = cell->fingerprint;
    return board->host->error(TUTTI_ERR_MISMATCH, "rank %d is in another operation, or with other arguments",
                              board->shm->peer[board->seat[rank]].rank);
}

static int meet(struct board *board, struct board_op *op)
{
    for (; op->peer < op->meets_to; op->peer++) {
        if (op->peer == board->rank) continue;
        int status = meet_one(board, op, op->peer);
        if (status != TUTTI_OK) return status;
    }
    if (op->meets_to - op->meets_from == board->n) board->all_in = step_of(op);
    op->met = true;
    op->peer = 0;
    op->done = 0;
    return TUTTI_OK;
}

/* What was read out of memory is the others' if they all still live: only then has their end not come before, and a pid
 * not passed to somebody else.  Nobody can have completed the operation yet, so none has a right to be gone. */
static int all_live(struct board *board)
{
    shm_look_at_lives(board->shm); /* with an acquire fence: see take_back */
    for (int i = 0; i < board->n; i++) {
        int status = i == board->rank ? TUTTI_OK : board_lost(board, i);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

/* The ranks that are in the operation's last step have read what they need. */
static bool is_last(const struct board_op *op)
{
    return op->large && op->at == op->steps - 1;
}

static int work(struct board *board, struct board_op *op)
{
    if (op->large) return is_last(op) ? TUTTI_OK : board_work_large(board, op);
    if (op->piped)
        board_work_pipe(board, op);
    else
        board_work_small(board, op);
    if (op->split) board_has_split(board, op);
    return TUTTI_OK;
}

/* Operations take their steps when they come to run: not before the one before them has ended is it known how many
 * that one took. */
static int start(struct board *board, struct board_op *op)
{
    int status = op->large ? board_prepare_large(board, op) : TUTTI_OK;
    if (status == TUTTI_OK) op->first = board->next;
    return status;
}

/* What is to be read can be, or had better be, read where it is. */
static int go_on_as_large(struct board *board, struct board_op *op)
{
    int status = board_prepare_large(board, op);
    if (status != TUTTI_OK) return status;
    op->call = 0; /* it is not what board_takes made of it any more */
    op->piped = op->shows = op->either = op->may_split = false;
    op->large = true;
    board_set_steps(board, op);
    board_set_meets(board, op);
    return TUTTI_OK;
}

/* All have said whether their memory is shared. */
static int go_on_after_showing(struct board *board, struct board_op *op)
{
    if (board_is_shared(board, op)) return go_on_as_large(board, op);
    op->ahead = op->split ? BOARD_AHEAD : 0;
    return TUTTI_OK;
}

/* A split operation takes turns of both ranks to its end.  One that has begun it and computes would keep the other one
 * waiting, who otherwise found all data at once.  So operations are split as long as both ranks wait for all of them;
 * and as both have to know it alike, it is what both have said in the step before the operation's first, which this
 * rank has seen the other in.  There is none before the first operation. */
static bool both_wait(const struct board *board, const struct board_op *op)
{
    uint64_t before = op->first - 1, waits = before << 1 | 1;
    for (int i = 0; i < board->n; i++) /* relaxed: it was met there */
        if (atomic_load_explicit(&board_cell_of(board, i, before)->step, memory_order_relaxed) != waits) return false;
    return true;
}

/* Which way, where there are several. */
static int choose(struct board *board, struct board_op *op)
{
    op->far = op->either && !board_goes_near(board, op);
    if (op->far) return op->reads ? go_on_as_large(board, op) : TUTTI_OK;
    if (!op->may_split || !both_wait(board, op)) return TUTTI_OK;
    op->call = 0;
    board_split(board, op);
    return TUTTI_OK;
}

/* Enters the step that it is in and, where it may, those that come next. */
static int enter_steps(struct board *board, struct board_op *op, bool *moved)
{
    while (op->entered <= op->at + op->ahead && op->entered < op->steps) {
        int status = find_cell(board, op);
        if (status == 1 && is_entered(op)) return TUTTI_OK;
        if (status == TUTTI_OK && op->entered == 0 && (op->either || op->may_split)) {
            status = choose(board, op);
            begin_step(board, op);
        }
        if (status == TUTTI_OK && is_last(op)) status = all_live(board);
        if (status != TUTTI_OK) return status;
        enter(board, op);
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
        int status = enter_steps(board, op, moved);
        if (status != TUTTI_OK) return status;
        if (!op->met) {
            status = meet(board, op);
            if (status != TUTTI_OK) return status;
            *moved = true;
            if (op->shows && op->at == 0) status = go_on_after_showing(board, op);
            op->met = status == TUTTI_OK; /* a failure is found again: see board_begin */
            if (status != TUTTI_OK) return status;
        }
        if (worked) return 1; /* a chunk a turn */
        status = work(board, op);
        if (status < 0) return status;
        *moved = true;
        if (status == 1) return 1;
        if (++op->at == op->steps) return TUTTI_OK;
        begin_step(board, op);
    }
}

/* TUTTI_OK: the operation is complete; 1: it is not; an error: it has failed.  *moved: something was done. */
static int advance(struct board *board, struct board_op *op, bool *moved)
{
    int status = run_steps(board, op, moved);
    if (status != 1 && op->first != 0) board->next = op->first + (uint64_t)op->steps;
    return status;
}

/* ---- operations -------------------------------------------------------------------------------------------- */

/* What the operation is, which is often the same as what the last one was, and that it has not begun. */
static bool describe(const struct board *board, const tutti_op *wanted, struct board_op *op)
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
    if (!describe(board, wanted, op)) {
        give_back(board, op);
        return TUTTI_ERR_UNSUPPORTED;
    }
    op->request = request;
    board->since_async = wanted->async ? 0 : board->since_async < PATIENCE ? board->since_async + 1 : PATIENCE;
    bool moved = false, runs = TAILQ_EMPTY(&board->ops);
    int status = runs ? advance(board, op, &moved) : 1;
    /* The others are often as good as here: then neither a turn of the engine nor a completion is needed. */
    bool looks = runs && status == 1 && !wanted->async && !op->large;
    for (int i = 0; looks && i < board->shm->looks && status == 1; i++) {
        shm_pause(board->shm);
        status = advance(board, op, &moved);
    }
    if (looks) shm_looked(board->shm, status != 1);
    if (status == TUTTI_OK) {
        give_back(board, op);
        return TUTTI_REQUEST_DONE;
    }
    TAILQ_INSERT_TAIL(&board->ops, op, link);
    /* A failure is the operation's, not the call's: the next turn finds it again. */
    if (!board->linked) LIST_INSERT_HEAD(running, board, link);
    board->linked = true;
    return TUTTI_REQUEST_PENDING;
}

const char *board_explain(const struct board *board, const tutti_op *op)
{
    struct board_op made = {0};
    if (board->state != BOARD_READY || !board_takes(board, op, &made)) return NULL;
    if (made.large) return "each rank reads what it needs out of the others' memory";
    if (made.may_split && !made.piped)
        return "through shared memory, in chunks while both ranks wait, else in one step";
    if (made.either && made.reads)
        return "in chunks through shared memory, or each reads the other's memory where that is faster";
    if (made.shows) return "through shared memory, in chunks, or in place where it is tutti_alloc's";
    if (made.piped) return "through shared memory, in chunks";
    return "through shared memory, in one step";
}

/* What others read after this is no longer the operation's.  They meet this rank in the last step once they have read,
 * with a fence in between (all_live), and what the caller will write comes after these stores, with this fence: who has
 * read any of it finds that the step is gone. */
static void take_back(struct board *board, const struct board_op *op)
{
    if (op->first == 0) return; /* it has not begun */
    if (op->large || op->piped) board->shm->arena.is_read = true;
    for (int i = 0; i < op->steps; i++) {
        struct board_cell *cell = board_cell_of(board, board->rank, op->first + (uint64_t)i);
        if (atomic_load_explicit(&cell->step, memory_order_relaxed) >> 1 < op->first) continue; /* not entered */
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
    take_back(board, op);
    finish(board, op);
    board->state = BOARD_NONE; /* its steps are out of order now; the group has failed */
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
        /* The others are to find for themselves what differs; none of them reads memory before it has. */
        if (status != TUTTI_OK && status != TUTTI_ERR_MISMATCH) take_back(board, op);
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
    if (!is_entered(op)) return find_cell(board, op) != 1;
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
    if (op == NULL || op->request != request) return; /* it waits for an earlier one */
    for (int i = 0; i < board->n; i++)
        if (awaits(board, op, i)) ranks[i] = true;
}
