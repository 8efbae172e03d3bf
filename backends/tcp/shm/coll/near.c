/* Detects whether the cores of a group's two ranks share a cache.
 *
 * If they do, copy-in/copy-out through a tray on two cores is faster than a single-copy read by the kernel.  If not,
 * each line crosses twice and the single-copy read is faster.  If only one rank would read, or none may, trays are
 * filled with non-temporal stores instead (shm_put.c).  The cores of a virtual machine may move, so the topology is
 * measured by the cost of filling trays, and both ranks must use the same result.  See
 * docs/benchmarks/shared-memory.md.
 *
 * Rank 0 measures.  If it finds, about to post step f, that the result has changed, it publishes a word that is valid
 * from step f + 1 on.  The other rank reads it when it may post a step k with its tray, which requires that all have
 * posted step k - 1 (BOARD_TRAYS is 2: coll.h).  So a rank that reaches step f + 1 or a later one has seen rank 0 in
 * step f, and the word.  A rank in an earlier step needs the previous word.  There are therefore two, and the older one
 * is overwritten once all have reached the step from which the newer one is valid.
 */
#include "tcp/shm/coll/parts.h"

enum {
    FAR_PS = 100, /* ps per byte into a tray above which cores are far, or at most which near again */
    NEAR_PS = 75,
    TRY_BITS = 6 /* cores are far: a fraction of 2^-TRY_BITS of the operations tries the near path */
};

_Static_assert(BOARD_TRAYS == 2, "a rank that may fill a tray has seen all others in the step before");

/* A word: valid from this step, and whether the cores are far. */
static uint64_t load_word(const struct board *board, int i)
{
    /* relaxed: the relevant value was stored before a step that this rank has acquired, see above */
    return atomic_load_explicit(&board->words[i], memory_order_relaxed);
}

static uint64_t valid_from(uint64_t word)
{
    return word >> 1;
}

static int newer_index(const struct board *board)
{
    return valid_from(load_word(board, 1)) > valid_from(load_word(board, 0));
}

static bool is_far(const struct board *board, uint64_t step)
{
    int last = newer_index(board);
    uint64_t late = load_word(board, last), early = load_word(board, !last);
    return (valid_from(late) <= step ? late : early) & 1;
}

/* Without trials, a rank on the far path would not notice a change. */
static bool is_trial(uint64_t step)
{
    return step * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TRY_BITS) == 0;
}

static void publish_if_changed(struct board *board, uint64_t step)
{
    int late = newer_index(board);
    uint64_t word = load_word(board, late);
    bool far = word & 1, found = board->tray_ps > (far ? NEAR_PS : FAR_PS);
    if (found == far || board->all_in < valid_from(word)) return;
    /* relaxed: the step is stored afterwards with release */
    atomic_store_explicit(&board->words[!late], (step + 1) << 1 | found, memory_order_relaxed);
}

bool board_goes_near(struct board *board, const struct board_op *op)
{
    if (board->rank == 0) publish_if_changed(board, op->first);
    return !is_far(board, op->first) || is_trial(op->first);
}

static void update_estimate(struct board *board, size_t bytes, uint64_t ns)
{
    uint32_t known = board->tray_ps != 0 ? board->tray_ps : NEAR_PS; /* the first measurement includes page faults */
    board->tray_ps = cost_believe(known, bytes, ns);
}

void board_has_filled(struct board *board, const struct board_op *op, size_t bytes, uint64_t ns)
{
    if (op->either && board->rank == 0) update_estimate(board, bytes, ns);
}

void board_has_split(struct board *board, struct board_op *op)
{
    if (!op->either || board->rank != 0) return;
    if (op->at == BOARD_ROOMS) op->midst_ns = board->host->now_ns();
    if (op->at < op->steps - 1 || op->at <= BOARD_ROOMS) return;
    update_estimate(board, 2 * (op->bytes - (BOARD_ROOMS + 1) * op->chunk), shm_ns_since(board->host, op->midst_ns));
}
