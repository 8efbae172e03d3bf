/* What each kind of operation does on a board. */
#include <stdlib.h>
#include <string.h>

#include "board.h"

enum {
    FLAT_MOST = 64 << 10, /* bytes of all ranks' data that one rank reduces alone; more are reduced in slices */
    SCRATCH = 1 << 20,    /* for blocks read from others: stays in the cache */
    BLOCK_MOST = 128 << 10,
    READ_MOST = 1 << 20, /* read in one turn where nothing is reduced */
    ALIGN = 64
};

/* ---- which ------------------------------------------------------------------------------------------------- */

static bool has_root(tutti_kind kind)
{
    return kind == TUTTI_BROADCAST || kind == TUTTI_REDUCE || kind == TUTTI_GATHER || kind == TUTTI_SCATTER;
}

static bool reduces(tutti_kind kind)
{
    return kind == TUTTI_ALL_REDUCE || kind == TUTTI_REDUCE || kind == TUTTI_REDUCE_SCATTER;
}

/* Blocks of one rank's tensor for each of the others: it puts, or shows, all of them. */
static bool puts_all(tutti_kind kind)
{
    return kind == TUTTI_REDUCE_SCATTER || kind == TUTTI_ALL_TO_ALL || kind == TUTTI_SCATTER;
}

static bool is_even(const tutti_tensor *list, int n)
{
    for (int i = 1; i < n; i++)
        if (list[i].numel != list[0].numel) return false;
    return true;
}

/* Lists of which every rank knows that their parts are alike look to the others like one tensor.  Which operations are
 * taken may depend on nothing else than what their fingerprint says. */
static bool take_list(const struct board *board, const tutti_op *op, struct board_op *made)
{
    bool gather = op->kind == TUTTI_ALL_GATHER;
    const tutti_tensor *list = gather ? op->out : op->in;
    if (!op->list) return op->in_splits == NULL;
    if (!gather && op->kind != TUTTI_REDUCE_SCATTER) return false;
    if (!is_even(list, board->n)) return false;
    made->list = malloc((size_t)board->n * sizeof *made->list);
    if (made->list == NULL) return false;
    for (int i = 0; i < board->n; i++) made->list[i] = list[i].data;
    return true;
}

static int64_t block_of(const struct board *board, const tutti_op *op)
{
    switch (op->kind) {
    case TUTTI_BARRIER:
    case TUTTI_MONITORED_BARRIER:
        return 0;
    case TUTTI_BROADCAST:
    case TUTTI_SCATTER:
    case TUTTI_REDUCE_SCATTER:
        return op->out[0].numel;
    case TUTTI_ALL_TO_ALL:
        return op->in[0].numel / board->n;
    default:
        return op->in[0].numel;
    }
}

static int steps_of(const struct board_op *op)
{
    if (!op->large) return op->sliced ? 2 : 1;
    return op->kind == TUTTI_ALL_REDUCE || op->kind == TUTTI_REDUCE ? 3 : 2;
}

bool board_takes(const struct board *board, const tutti_op *op, struct board_op *made)
{
    if (!board->plain || op->kind >= TUTTI_SEND) return false;
    if (reduces(op->kind) && op->reduce_op == TUTTI_PREMUL_SUM) return false;
    made->kind = op->kind;
    made->numel = block_of(board, op);
    made->element = (size_t)tutti_dtype_bytes(op->dtype);
    made->bytes = (size_t)made->numel * made->element;
    size_t put = puts_all(op->kind) ? made->bytes * (size_t)board->n : made->bytes;
    made->large = put > board->room;
    if (made->large && !board->shm->can_pull) return false;
    made->reduce = op->reduce_op;
    made->dtype = op->dtype;
    made->root = op->root;
    made->sliced = !made->large && op->kind == TUTTI_ALL_REDUCE && made->bytes * (size_t)board->n > FLAT_MOST;
    made->steps = steps_of(made);
    made->in = op->n_in > 0 ? op->in[0].data : op->n_out > 0 ? op->out[0].data : NULL; /* broadcast has only an out */
    made->out = op->n_out > 0 ? op->out[0].data : NULL;
    return take_list(board, op, made);
}

/* ---- who and where ----------------------------------------------------------------------------------------- */

/* The first step of a rooted operation concerns root and others differently; later steps all. */
bool board_meets(const struct board *board, const struct board_op *op, int rank)
{
    if (op->at > 0 || !has_root(op->kind) || (op->large && op->kind == TUTTI_REDUCE)) return true;
    bool from_root = op->kind == TUTTI_BROADCAST || op->kind == TUTTI_SCATTER;
    return from_root ? rank == op->root : op->root == board->rank;
}

static const void *data_of(const struct board *board, int rank, uint64_t step, size_t bytes)
{
    const struct board_cell *cell = board_cell_of(board, rank, step);
    return bytes <= BOARD_INLINE ? cell->small : cell->data;
}

static char *room_of(const struct board *board, uint64_t step, size_t bytes)
{
    struct board_cell *cell = board_cell_of(board, board->rank, step);
    return bytes <= BOARD_INLINE ? cell->small : cell->data;
}

static char *out_block(const struct board_op *op, int i)
{
    if (op->list != NULL && op->kind == TUTTI_ALL_GATHER) return op->list[i];
    return op->out + (size_t)i * op->bytes;
}

static const char *in_block(const struct board_op *op, int i)
{
    if (op->list != NULL && op->kind == TUTTI_REDUCE_SCATTER) return op->list[i];
    return op->in + (size_t)i * op->bytes;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from) memmove(to, from, bytes);
}

/* The part of an all_reduce that rank reduces for all: whole lines, so that no two ranks write to one. */
struct slice {
    size_t at, bytes;
};

static struct slice slice_of(const struct board *board, const struct board_op *op, int rank)
{
    size_t n = (size_t)board->n, line = op->element > ALIGN ? op->element : ALIGN;
    size_t each = ((op->bytes + n - 1) / n + line - 1) / line * line, at = each * (size_t)rank;
    if (at >= op->bytes) return (struct slice){op->bytes, 0};
    return (struct slice){at, op->bytes - at < each ? op->bytes - at : each};
}

/* ---- entering ---------------------------------------------------------------------------------------------- */

static size_t put_bytes(const struct board *board, const struct board_op *op)
{
    return puts_all(op->kind) ? op->bytes * (size_t)board->n : op->bytes;
}

static bool puts_something(const struct board *board, const struct board_op *op)
{
    return (op->kind != TUTTI_BROADCAST && op->kind != TUTTI_SCATTER) || op->root == board->rank;
}

/* Where the others find what they read. */
static void show(const struct board *board, const struct board_op *op, struct board_cell *cell)
{
    const char *in = op->in, *out = op->out;
    if (op->kind == TUTTI_REDUCE && op->root != board->rank) out = board->result;
    if (op->kind == TUTTI_ALL_TO_ALL && op->in == op->out) { /* what the others still have to read is written over */
        in = board->result;
        if (op->at == 0) memcpy(board->result, op->in, put_bytes(board, op));
    }
    cell->in = (uint64_t)(uintptr_t)in;
    cell->out = (uint64_t)(uintptr_t)out;
    uint64_t *block = (uint64_t *)(void *)cell->data; /* a list's parts lie anywhere */
    for (int i = 0; op->kind == TUTTI_REDUCE_SCATTER && i < board->n; i++)
        block[i] = (uint64_t)(uintptr_t)in_block(op, i);
}

void board_put(struct board *board, struct board_op *op)
{
    uint64_t step = op->first + (uint64_t)op->at;
    struct board_cell *cell = board_cell_of(board, board->rank, step);
    if (op->large) {
        show(board, op, cell);
        return;
    }
    if (op->at > 0 || !puts_something(board, op)) return; /* a slice's result was put when it was made */
    char *to = room_of(board, step, put_bytes(board, op));
    if (op->kind != TUTTI_REDUCE_SCATTER || op->list == NULL) {
        copy(to, op->in, put_bytes(board, op));
        return;
    }
    for (int i = 0; i < board->n; i++) copy(to + (size_t)i * op->bytes, op->list[i], op->bytes);
}

/* ---- small ------------------------------------------------------------------------------------------------- */

static void reduce_to(const struct board *board, const struct board_op *op, void *to, const void *const *from,
                      size_t bytes)
{
    int64_t n = (int64_t)(bytes / op->element);
    if (n == 0) return;
    board->host->reduce_many(op->dtype, op->reduce, to, from, board->n, n);
    if (op->reduce == TUTTI_AVG) board->host->average(op->dtype, to, n, board->n);
}

static void reduce_cells(struct board *board, struct board_op *op, size_t at, void *to, size_t bytes)
{
    const void *from[SHM_SEATS];
    for (int i = 0; i < board->n; i++) from[i] = (const char *)data_of(board, i, op->first, put_bytes(board, op)) + at;
    reduce_to(board, op, to, from, bytes);
}

static void work_sliced(struct board *board, struct board_op *op)
{
    struct slice mine = slice_of(board, op, board->rank);
    if (op->at == 0) {
        /* all have entered the step before, so this cell is free */
        char *to = board_cell_of(board, board->rank, op->first + 1)->data;
        reduce_cells(board, op, mine.at, to, mine.bytes);
        copy(op->out + mine.at, to, mine.bytes);
        return;
    }
    for (int i = 0; i < board->n; i++) {
        struct slice other = slice_of(board, op, i);
        if (i != board->rank) copy(op->out + other.at, board_cell_of(board, i, op->first + 1)->data, other.bytes);
    }
}

static void work_small(struct board *board, struct board_op *op)
{
    bool root = op->root == board->rank;
    size_t put = put_bytes(board, op), own = (size_t)board->rank * op->bytes;
    switch (op->kind) {
    case TUTTI_ALL_REDUCE:
        if (op->sliced)
            work_sliced(board, op);
        else
            reduce_cells(board, op, 0, op->out, op->bytes);
        break;
    case TUTTI_REDUCE:
        if (root) reduce_cells(board, op, 0, op->out, op->bytes);
        break;
    case TUTTI_REDUCE_SCATTER:
        reduce_cells(board, op, own, op->out, op->bytes);
        break;
    case TUTTI_BROADCAST:
        if (!root) copy(op->out, data_of(board, op->root, op->first, put), put);
        break;
    case TUTTI_SCATTER:
        copy(op->out, (const char *)data_of(board, op->root, op->first, put) + own, op->bytes);
        break;
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        for (int i = 0; i < board->n && (root || op->kind == TUTTI_ALL_GATHER); i++)
            copy(out_block(op, i), data_of(board, i, op->first, put), op->bytes);
        break;
    case TUTTI_ALL_TO_ALL:
        for (int i = 0; i < board->n; i++)
            copy(out_block(op, i), (const char *)data_of(board, i, op->first, put) + own, op->bytes);
        break;
    default:
        break;
    }
}

/* ---- large ------------------------------------------------------------------------------------------------- */

/* Bytes from another rank's memory.  1: it has taken its step back, and says why; an error: it is lost. */
static int pull(struct board *board, struct board_op *op, int rank, void *to, uint64_t from, size_t bytes)
{
    int seat = board->seat[rank];
    if (shm_pull(board->shm, seat, to, from, bytes)) return TUTTI_OK;
    if (shm_is_open(board->shm, seat) &&
        !board_has_entered(board, rank, op->first + (uint64_t)op->at, memory_order_acquire)) {
        op->met = false; /* it is waited for again */
        op->peer = rank;
        return 1;
    }
    shm_unreadable(board->shm, seat);
    return board_lost(board, rank);
}

/* One block of what every rank has at `at`, reduced to `to`, which is then done. */
static int reduce_block(struct board *board, struct board_op *op, size_t at, size_t bytes, char *to)
{
    size_t most = SCRATCH / (size_t)board->n / ALIGN * ALIGN;
    const void *from[SHM_SEATS];
    if (most > BLOCK_MOST) most = BLOCK_MOST;
    if (bytes > most) bytes = most;
    for (int i = 0; i < board->n; i++) {
        const struct board_cell *cell = board_cell_of(board, i, op->first);
        char *into = board->scratch + (size_t)i * most;
        bool scatter = op->kind == TUTTI_REDUCE_SCATTER;
        from[i] = i != board->rank ? into : (scatter ? in_block(op, i) : op->in) + at;
        if (i == board->rank) continue;
        uint64_t theirs = scatter ? ((const uint64_t *)(const void *)cell->data)[board->rank] : cell->in;
        int status = pull(board, op, i, into, theirs + at, bytes);
        if (status != TUTTI_OK) return status;
    }
    reduce_to(board, op, to, from, bytes);
    op->done += bytes;
    return TUTTI_OK;
}

/* The own slice, or block. */
static int reduce_own(struct board *board, struct board_op *op)
{
    struct slice own = {0, op->bytes};
    char *to = op->out;
    int status = TUTTI_OK;
    if (op->kind != TUTTI_REDUCE_SCATTER) {
        own = slice_of(board, op, board->rank);
        to = op->kind == TUTTI_REDUCE && op->root != board->rank ? board->result : op->out + own.at;
    }
    if (op->done < own.bytes) status = reduce_block(board, op, own.at + op->done, own.bytes - op->done, to + op->done);
    return status == TUTTI_OK && op->done < own.bytes ? 1 : status;
}

/* What this rank reads from another one in a step that only copies: where it is there, where it goes. */
struct part {
    uint64_t from;
    char *to;
    size_t bytes;
};

static struct part part_of(const struct board *board, const struct board_op *op, int rank)
{
    const struct board_cell *cell = board_cell_of(board, rank, op->first + (uint64_t)op->at);
    struct slice slice = slice_of(board, op, rank);
    size_t own = (size_t)board->rank * op->bytes;
    bool root = op->root == board->rank, of_root = op->root == rank;
    switch (op->kind) {
    case TUTTI_REDUCE:
        return (struct part){cell->out, root ? op->out + slice.at : NULL, root ? slice.bytes : 0};
    case TUTTI_ALL_REDUCE:
        return (struct part){cell->out + slice.at, op->out + slice.at, slice.bytes};
    case TUTTI_ALL_GATHER:
        return (struct part){cell->in, out_block(op, rank), op->bytes};
    case TUTTI_GATHER:
        return (struct part){cell->in, root ? out_block(op, rank) : NULL, root ? op->bytes : 0};
    case TUTTI_ALL_TO_ALL:
        return (struct part){cell->in + own, out_block(op, rank), op->bytes};
    case TUTTI_SCATTER:
        return (struct part){cell->in + own, op->out, of_root ? op->bytes : 0};
    default:
        return (struct part){cell->in, op->out, of_root ? op->bytes : 0}; /* broadcast */
    }
}

/* The own part of a gather and the like, which no other rank has. */
static void copy_own(const struct board *board, const struct board_op *op)
{
    bool root = op->root == board->rank;
    const char *from = op->kind == TUTTI_ALL_TO_ALL || op->kind == TUTTI_SCATTER ? in_block(op, board->rank) : op->in;
    if (op->kind == TUTTI_ALL_GATHER || op->kind == TUTTI_ALL_TO_ALL || (op->kind == TUTTI_GATHER && root))
        copy(out_block(op, board->rank), from, op->bytes);
    if (op->kind == TUTTI_SCATTER && root) copy(op->out, from, op->bytes);
}

/* The others' parts, each rank beginning with its neighbour's. */
static int read_parts(struct board *board, struct board_op *op)
{
    for (; op->peer < board->n - 1; op->peer++, op->done = 0) {
        int rank = (board->rank + 1 + op->peer) % board->n;
        struct part part = part_of(board, op, rank);
        size_t left = part.bytes - op->done, bytes = left < READ_MOST ? left : READ_MOST;
        if (bytes == 0) continue;
        int status = pull(board, op, rank, part.to + op->done, part.from + op->done, bytes);
        if (status != TUTTI_OK) return status;
        op->done += bytes;
        if (op->done < part.bytes) return 1;
    }
    if (op->at == 0) copy_own(board, op);
    return TUTTI_OK;
}

int board_work(struct board *board, struct board_op *op)
{
    if (op->large) return op->at == 0 && reduces(op->kind) ? reduce_own(board, op) : read_parts(board, op);
    work_small(board, op);
    return TUTTI_OK;
}

int board_prepare(struct board *board, const struct board_op *op)
{
    size_t need = 0;
    void *memory = NULL;
    if (!op->large) return TUTTI_OK;
    if (op->kind == TUTTI_REDUCE && op->root != board->rank) need = slice_of(board, op, board->rank).bytes;
    if (op->kind == TUTTI_ALL_TO_ALL && op->in == op->out) need = put_bytes(board, op);
    if (board->scratch == NULL && reduces(op->kind) && posix_memalign(&memory, SHM_LINE, SCRATCH) == 0)
        board->scratch = memory;
    if (need > board->result_bytes) {
        free(board->result);
        board->result = NULL;
        board->result_bytes = 0;
        if (posix_memalign(&memory, SHM_LINE, need) == 0) {
            board->result = memory;
            board->result_bytes = need;
        }
    }
    if ((board->scratch != NULL || !reduces(op->kind)) && board->result_bytes >= need) return TUTTI_OK;
    return board->host->error(TUTTI_ERR_NO_MEMORY, "no memory for an operation on %zu bytes", op->bytes);
}
