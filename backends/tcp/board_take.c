/* Which operations a board takes, how, and whom each step waits for. */
#include <stdlib.h>

#include "board_parts.h"

enum { FLAT_MOST = 64 << 10 /* bytes of all ranks' data that one rank reduces alone; more are reduced in slices */ };

static bool has_root(tutti_kind kind)
{
    return kind == TUTTI_BROADCAST || kind == TUTTI_REDUCE || kind == TUTTI_GATHER || kind == TUTTI_SCATTER;
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
    if (board_reduces(op->kind) && op->reduce_op == TUTTI_PREMUL_SUM) return false;
    made->kind = op->kind;
    made->numel = block_of(board, op);
    made->element = (size_t)tutti_dtype_bytes(op->dtype);
    made->bytes = (size_t)made->numel * made->element;
    size_t put = board_puts_all(op->kind) ? made->bytes * (size_t)board->n : made->bytes;
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

/* The first step of a rooted operation concerns root and others differently; later steps all. */
bool board_meets_all(const struct board_op *op)
{
    return op->at > 0 || !has_root(op->kind) || (op->large && op->kind == TUTTI_REDUCE);
}

bool board_meets(const struct board *board, const struct board_op *op, int rank)
{
    if (board_meets_all(op)) return true;
    bool from_root = op->kind == TUTTI_BROADCAST || op->kind == TUTTI_SCATTER;
    return from_root ? rank == op->root : op->root == board->rank;
}
