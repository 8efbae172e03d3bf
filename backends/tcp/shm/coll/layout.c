/* Computes the layout of a collective segment.  The published ways come first, then what each rank writes, one rank
 * after another, then the ranks' counts of work.  The sizes depend on the number of the group's ranks, not on that of
 * the host's. */
#include "tcp/shm/coll/coll.h"

enum {
    EAGER_MAX = 16 << 10,
    EAGER_MIN = 4 << 10,
    FRAGMENT_MAX = 256 << 10,
    FRAGMENT_MIN = SHM_RANKS_MAX * SHM_LINE / 2,
    FEW_RANKS = 8,
    /* Offsets in a rank's part, which begins with its control slots. */
    TINY_AT = COLL_SLOTS * sizeof(struct coll_slot),
    SMALL_AT = TINY_AT + COLL_SLOTS * COLL_TINY,
    EAGER_AT = SMALL_AT + COLL_SMALL_BUFFERS * COLL_SMALL,
    /* Buffers begin where others end, in whole units.  Copies between them and a program's buffers, which mostly begin
     * at the same place of a page, then take equally long in all ranks' parts. */
    UNIT = 4096
};

_Static_assert((COLL_SLOTS & (COLL_SLOTS - 1)) == 0 && (COLL_SMALL_BUFFERS & (COLL_SMALL_BUFFERS - 1)) == 0,
               "scatter() needs powers of two");

/* Returns the position of a step's slot or buffer among n.  Steps in a row are scattered without a pattern.  In a
 * pattern, the processor of a rank that waits would fetch the next ones ahead, and so take their lines from the rank
 * that is about to fill them.  Each operation here can be undone modulo a power of two, so n steps in a row have n
 * positions. */
static uint64_t scatter(uint64_t step, uint64_t n)
{
    uint64_t at = step * 37 % n;
    return at ^ at >> 3;
}

/* Returns the bytes of a rank's buffer, which are `most` in a group of few ranks.  In a group of many ranks buffers are
 * smaller, so a segment grows no faster than the number of ranks. */
static size_t divide(int n, size_t most, size_t least)
{
    for (int many = FEW_RANKS; many < n && most > least; many *= 2) most /= 2;
    return most;
}

/* Returns the bytes of a fragment buffer and the results behind it, which are those of a slice of its data (parts.h).
 */
static size_t fragment_span(size_t fragment_bytes, int n)
{
    size_t slice = (fragment_bytes / (size_t)n / SHM_LINE + 1) * SHM_LINE;
    return (fragment_bytes + slice + UNIT - 1) / UNIT * UNIT;
}

/* Two fragment buffers fit the second-level cache.  Each holds at least a line (parts.h) per rank. */
static struct coll_layout lay_out(int n)
{
    struct coll_layout layout = {.eager_bytes = divide(n, EAGER_MAX, EAGER_MIN),
                                 .fragment_bytes = divide(n, FRAGMENT_MAX, FRAGMENT_MIN)};
    layout.fragment_span = fragment_span(layout.fragment_bytes, n);
    layout.fragments_at = EAGER_AT + COLL_EAGER_BUFFERS * layout.eager_bytes;
    layout.rank_span = layout.fragments_at + COLL_FRAGMENTS * layout.fragment_span;
    return layout;
}

size_t coll_group_bytes(int n)
{
    return COLL_WORDS + (size_t)n * (lay_out(n).rank_span + COLL_WORDS);
}

size_t coll_bytes(int n)
{
    size_t most = 0;
    for (int i = 1; i <= n; i++)
        if (coll_group_bytes(i) > most) most = coll_group_bytes(i);
    return most;
}

void coll_lay_out(struct coll_segment *segment, const struct shm *shm, int index, int n)
{
    segment->words = shm_coll_at(shm, index);
    segment->ranks = (char *)segment->words + COLL_WORDS;
    segment->layout = lay_out(n);
    segment->work = segment->ranks + (size_t)n * segment->layout.rank_span;
}

static char *part_at(const struct coll_segment *segment, int rank, size_t at)
{
    return segment->ranks + (size_t)rank * segment->layout.rank_span + at;
}

struct coll_slot *coll_slot_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    return (struct coll_slot *)(void *)part_at(segment, rank, 0) + scatter(step, COLL_SLOTS);
}

char *coll_tiny_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    return part_at(segment, rank, TINY_AT + scatter(step, COLL_SLOTS) * COLL_TINY);
}

char *coll_small_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    return part_at(segment, rank, SMALL_AT + scatter(step, COLL_SMALL_BUFFERS) * COLL_SMALL);
}

char *coll_eager_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    uint64_t i = step % COLL_EAGER_BUFFERS;
    return part_at(segment, rank, EAGER_AT + i * segment->layout.eager_bytes);
}

char *coll_fragment_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    uint64_t i = step % COLL_FRAGMENTS;
    return part_at(segment, rank, segment->layout.fragments_at + i * segment->layout.fragment_span);
}

_Atomic uint64_t *coll_work_of(const struct coll_segment *segment, int rank)
{
    return (_Atomic uint64_t *)(void *)(segment->work + (size_t)rank * COLL_WORDS);
}

void coll_clear_steps(const struct shm *shm, int index, int n)
{
    struct coll_segment segment;
    coll_lay_out(&segment, shm, index, n);
    for (int rank = 0; rank < n; rank++)
        for (uint64_t i = 0; i < COLL_SLOTS; i++) /* relaxed: the caller publishes the segment */
            atomic_store_explicit(&coll_slot_of(&segment, rank, i)->step, 0, memory_order_relaxed);
}
