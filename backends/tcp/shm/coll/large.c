/* Large operations: the ranks read each other's memory. */
#include <stdlib.h>

#include "tcp/shm/coll/parts.h"

enum {
    SCRATCH = 1 << 20, /* for blocks read from peers: stays in the cache */
    BLOCK_MOST = 512 << 10,
    READ_MOST = 1 << 20 /* read per call if nothing is reduced */
};

/* Addresses of a list's blocks, at the end of the step's room.  The beginning may hold the first chunk of a split
 * operation that turns out to be large. */
static uint64_t *addresses_of(const struct board *board, int rank, uint64_t step)
{
    size_t at = board->room - (size_t)board->n * sizeof(uint64_t);
    return (uint64_t *)(void *)(board_room_of(board, rank, step) + at);
}

/* Publishes the addresses that the others read from. */
void board_put_large(struct board *board, struct board_op *op)
{
    struct board_cell *cell = board_cell_of(board, board->rank, op->first + (uint64_t)op->at);
    const char *in = op->in, *out = op->out;
    if (op->kind == TUTTI_REDUCE && op->root != board->rank) out = board->result;
    if (op->kind == TUTTI_ALL_TO_ALL && op->in == op->out) { /* the input is overwritten while others still read it */
        in = board->result;
        if (op->at == 0) memcpy(board->result, op->in, op->put);
    }
    cell->in = (uint64_t)(uintptr_t)in;
    cell->out = (uint64_t)(uintptr_t)out;
    uint64_t *block = addresses_of(board, board->rank, op->first + (uint64_t)op->at);
    for (int i = 0; op->kind == TUTTI_REDUCE_SCATTER && i < board->n; i++)
        block[i] = (uint64_t)(uintptr_t)board_in_block(op, i);
}

/* Reads bytes from another rank's memory.  Returns 1 if the rank has withdrawn its step, or an error if it is lost. */
static int read_peer(struct board *board, struct board_op *op, int rank, void *to, uint64_t from, size_t bytes)
{
    int seat = board->seat[rank];
    const void *mapped = shm_reach(board->shm, seat, from, bytes);
    if (mapped != NULL) {
        board_take(op, to, mapped, bytes);
        return TUTTI_OK;
    }
    if (shm_pull(board->shm, seat, to, from, bytes)) return TUTTI_OK;
    if (shm_is_open(board->shm, seat) && !board_has_entered(board, rank, op->first + (uint64_t)op->at)) {
        op->met = false; /* wait for it again */
        op->peer = rank;
        return 1;
    }
    shm_unreadable(board->shm, seat);
    return board_lost(board, rank);
}

/* Reduces one block of all ranks' data at `at` into `to`.  With two ranks the peer's block is read straight into `to`,
 * unless this rank's own data is there: that saves a pass through the cache. */
static int reduce_block(struct board *board, struct board_op *op, size_t at, size_t bytes, char *to)
{
    size_t most = SCRATCH / (size_t)board->n / BOARD_ALIGN * BOARD_ALIGN;
    const void *from[SHM_SEATS];
    bool scatter = op->kind == TUTTI_REDUCE_SCATTER;
    const char *own = (scatter ? board_in_block(op, board->rank) : op->in) + at;
    if (most > BLOCK_MOST) most = BLOCK_MOST;
    if (bytes > most) bytes = most;
    if (!scatter) board_begin_result(board, op, bytes);
    bool past = !scatter && board->put.past;
    for (int i = 0; i < board->n; i++) {
        const struct board_cell *cell = board_cell_of(board, i, op->first);
        char *into = board->n == 2 && own != to && !past ? to : board->scratch + (size_t)i * most;
        uint64_t theirs = scatter ? addresses_of(board, i, op->first)[board->rank] : cell->in;
        from[i] = i == board->rank ? own : shm_reach(board->shm, board->seat[i], theirs + at, bytes);
        if (from[i] != NULL) continue;
        from[i] = into;
        int status = read_peer(board, op, i, into, theirs + at, bytes);
        if (status != TUTTI_OK) return status;
    }
    if (scatter)
        board_reduce_to(board, op, to, from, bytes);
    else
        board_reduce_result(board, op, to, from, bytes);
    op->done += bytes;
    return TUTTI_OK;
}

/* Reduces this rank's slice or block. */
static int reduce_own(struct board *board, struct board_op *op)
{
    struct slice own = {0, op->bytes};
    char *to = op->out;
    int status = TUTTI_OK;
    if (op->kind != TUTTI_REDUCE_SCATTER) {
        own = board_slice_of(board, op, board->rank);
        to = op->kind == TUTTI_REDUCE && op->root != board->rank ? board->result : op->out + own.at;
    }
    if (op->done < own.bytes) status = reduce_block(board, op, own.at + op->done, own.bytes - op->done, to + op->done);
    return status == TUTTI_OK && op->done < own.bytes ? 1 : status;
}

/* What this rank reads from a peer in a copying step: source address, destination, size. */
struct part {
    uint64_t from;
    char *to;
    size_t bytes;
};

static struct part peer_part(const struct board *board, const struct board_op *op, int rank)
{
    const struct board_cell *cell = board_cell_of(board, rank, op->first + (uint64_t)op->at);
    struct slice slice = board_slice_of(board, op, rank);
    size_t own = (size_t)board->rank * op->bytes;
    bool root = op->root == board->rank, of_root = op->root == rank;
    switch (op->kind) {
    case TUTTI_REDUCE:
        return (struct part){cell->out, root ? op->out + slice.at : NULL, root ? slice.bytes : 0};
    case TUTTI_ALL_REDUCE:
        return (struct part){cell->out + slice.at, op->out + slice.at, slice.bytes};
    case TUTTI_ALL_GATHER:
        return (struct part){cell->in, board_out_block(op, rank), op->bytes};
    case TUTTI_GATHER:
        return (struct part){cell->in, root ? board_out_block(op, rank) : NULL, root ? op->bytes : 0};
    case TUTTI_ALL_TO_ALL:
        return (struct part){cell->in + own, board_out_block(op, rank), op->bytes};
    case TUTTI_SCATTER:
        return (struct part){cell->in + own, op->out, of_root ? op->bytes : 0};
    default:
        return (struct part){cell->in, op->out, of_root ? op->bytes : 0}; /* broadcast */
    }
}

/* Copies this rank's own block of a gather or the like. */
static void copy_own(const struct board *board, const struct board_op *op)
{
    bool root = op->root == board->rank;
    const char *from =
        op->kind == TUTTI_ALL_TO_ALL || op->kind == TUTTI_SCATTER ? board_in_block(op, board->rank) : op->in;
    if (op->kind == TUTTI_ALL_GATHER || op->kind == TUTTI_ALL_TO_ALL || (op->kind == TUTTI_GATHER && root))
        tutti_copy(board_out_block(op, board->rank), from, op->bytes);
    if (op->kind == TUTTI_SCATTER && root) tutti_copy(op->out, from, op->bytes);
}

/* Reads the others' parts; each rank begins with its neighbor's. */
static int read_parts(struct board *board, struct board_op *op)
{
    for (; op->peer < board->n - 1; op->peer++, op->done = 0) {
        int rank = (board->rank + 1 + op->peer) % board->n;
        if (!board_meets(op, rank)) continue; /* it may be writing its control slot */
        struct part part = peer_part(board, op, rank);
        size_t left = part.bytes - op->done, bytes = left < READ_MOST ? left : READ_MOST;
        if (bytes == 0) continue;
        int status = read_peer(board, op, rank, part.to + op->done, part.from + op->done, bytes);
        if (status != TUTTI_OK) return status;
        op->done += bytes;
        if (op->done < part.bytes) return 1;
    }
    if (op->at == 0) copy_own(board, op);
    return TUTTI_OK;
}

int board_work_large(struct board *board, struct board_op *op)
{
    return op->at == 0 && tutti_kind_reduces(op->kind) ? reduce_own(board, op) : read_parts(board, op);
}

void board_free_result(struct board *board)
{
    if (board->result_is_shared)
        shm_free(board->shm, board->result);
    else
        free(board->result);
    board->result = NULL;
    board->result_bytes = 0;
    board->result_is_shared = false;
}

/* Allocates shared memory if all ranks can map it, so that it is read in place, or private memory if CMA is available.
 */
static void make_result(struct board *board, size_t bytes)
{
    void *memory = NULL;
    board_free_result(board);
    board->result_is_shared = board->shm->can_share && shm_alloc(board->shm, bytes, &memory) == TUTTI_OK;
    if (!board->result_is_shared && (!board->shm->can_pull || posix_memalign(&memory, SHM_LINE, bytes) != 0)) return;
    board->result = memory;
    board->result_bytes = bytes;
}

int board_prepare_large(struct board *board, const struct board_op *op)
{
    size_t need = 0;
    void *memory = NULL;
    if (op->kind == TUTTI_REDUCE && op->root != board->rank) need = board_slice_of(board, op, board->rank).bytes;
    if (op->kind == TUTTI_ALL_TO_ALL && op->in == op->out) need = op->put;
    if (board->scratch == NULL && tutti_kind_reduces(op->kind) && posix_memalign(&memory, SHM_LINE, SCRATCH) == 0)
        board->scratch = memory;
    if (need > board->result_bytes) make_result(board, need);
    if ((board->scratch != NULL || !tutti_kind_reduces(op->kind)) && board->result_bytes >= need) return TUTTI_OK;
    return board->host->error(TUTTI_ERR_NO_MEMORY, "no memory for an operation on %zu bytes", op->bytes);
}
