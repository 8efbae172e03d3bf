/* Whether the cores of a group's two ranks share a cache.
 *
 * Where they do, a copy into a tray and one out of it, by two cores at a time, are faster than to have the kernel read
 * the other rank's memory (all_to_all of 64 KiB 4.7 us for 8.9); where they do not, each line of a tray crosses twice,
 * and they are slower (12).  Then the other's memory is read after all; but where one of them alone would read, or
 * none may, what is put into trays goes past the caches (shm_put.c; broadcast of 4 MiB 235 us, read directly 330).  A
 * virtual machine's cores are now near and now far, so it is measured, by what filling trays takes, and both ranks have
 * to do the same.
 *
 * Rank 0 measures.  When it finds, about to enter step f, that times have changed, it says so in a word that counts
 * from step f + 1 on.  The other rank looks at it when it may enter a step k with its tray, which is when it has seen
 * all in step k - 1 (BOARD_TRAYS is 2: board.h): whoever comes to step f + 1 or a later one has seen rank 0 in step f,
 * and so the word.  Who comes to an earlier one needs the word before: there are two, and the older one is written
 * again once all have come to where the newer one counts from.
 */
#include "board_parts.h"

enum {
    FAR_PS = 100, /* a byte into a tray; near 40 to 85 (split operations 30 to 70), far from 110: measured */
    NEAR_PS = 75,
    TRY_BITS = 6 /* in one of so many bits of operations the near way is tried while cores are far */
};

_Static_assert(BOARD_TRAYS == 2, "who may fill a tray has seen all others in the step before");

/* A word: from which step on, and whether the cores are far. */
static uint64_t word_of(const struct board *board, int i)
{
    /* relaxed: what counts here was stored before the step that this rank has seen the others in, see above */
    return atomic_load_explicit(&board->words[i], memory_order_relaxed);
}

static uint64_t from_of(uint64_t word)
{
    return word >> 1;
}

static int newer(const struct board *board)
{
    return from_of(word_of(board, 1)) > from_of(word_of(board, 0));
}

static bool is_far(const struct board *board, uint64_t step)
{
    int last = newer(board);
    uint64_t late = word_of(board, last), early = word_of(board, !last);
    return (from_of(late) <= step ? late : early) & 1;
}

/* Whoever is far would not hear that times have changed. */
static bool is_trial(uint64_t step)
{
    return step * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TRY_BITS) == 0;
}

static void tell(struct board *board, uint64_t step)
{
    int late = newer(board);
    uint64_t word = word_of(board, late);
    bool far = word & 1, found = board->tray_ps > (far ? NEAR_PS : FAR_PS);
    if (found == far || board->all_in < from_of(word)) return;
    /* relaxed: the step's store comes after it, with release */
    atomic_store_explicit(&board->words[!late], (step + 1) << 1 | found, memory_order_relaxed);
}

bool board_goes_near(struct board *board, const struct board_op *op)
{
    if (board->rank == 0) tell(board, op->first);
    return !is_far(board, op->first) || is_trial(op->first);
}

static void learn(struct board *board, size_t bytes, uint64_t ns)
{
    uint32_t known = board->tray_ps != 0 ? board->tray_ps : NEAR_PS; /* the first time has been for getting pages */
    board->tray_ps = pace_believe(known, bytes, ns);
}

void board_has_filled(struct board *board, const struct board_op *op, size_t bytes, uint64_t ns)
{
    if (op->either && board->rank == 0) learn(board, bytes, ns);
}

void board_has_split(struct board *board, struct board_op *op)
{
    if (!op->either || board->rank != 0) return;
    if (op->at == BOARD_ROOMS) op->midst_ns = board->host->now_ns();
    if (op->at < op->steps - 1 || op->at <= BOARD_ROOMS) return;
    learn(board, 2 * (op->bytes - (BOARD_ROOMS + 1) * op->chunk), shm_ns_since(board->host, op->midst_ns));
}
