/* Computes the layout of a collective segment. */
#include "tcp/shm/coll/coll.h"

enum {
    EAGER_MAX = 16 << 10,
    EAGER_MIN = 4 << 10,
    FRAGMENT_MAX = 256 << 10,
    FRAGMENT_MIN = SHM_RANKS_MAX * SHM_LINE / 2,
    FEW_RANKS = 8
};

/* Distances between the slots, and between the small buffers, of two steps in a row.  They are odd, so all are used.
 * With a distance of 1, the processor of a rank that waits would fetch the next one ahead, too, and so take its line
 * from the rank that is about to fill it. */
enum { SLOT_STRIDE = 37, SMALL_STRIDE = 5 };

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

/* Returns the bytes of a fragment buffer.  Two of them fit the second-level cache.  With many ranks each is smaller, so
 * that a segment grows no faster than the number of ranks, but it holds at least a line (parts.h) per rank. */
static size_t fragment_bytes(int n)
{
    size_t bytes = FRAGMENT_MAX;
    for (int many = FEW_RANKS; many < n; many *= 2) bytes /= 2;
    return bytes > FRAGMENT_MIN ? bytes : FRAGMENT_MIN;
}

/* Returns the bytes of a rank's fragment buffers and results. */
static size_t fragments_bytes(int n)
{
    return COLL_FRAGMENTS * (fragment_bytes(n) + fragment_bytes(n) / 2);
}

size_t coll_bytes(int n)
{
    return COLL_WORDS + control_slots_bytes(n) + small_buffers_bytes(n) + eager_buffers_bytes(n) +
           (size_t)n * fragments_bytes(n);
}

char *coll_fragment_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    size_t span = segment->fragment_bytes + segment->fragment_bytes / 2;
    return segment->fragments + ((size_t)rank * COLL_FRAGMENTS + step % COLL_FRAGMENTS) * span;
}

struct coll_slot *coll_slot_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    return (struct coll_slot *)(void *)segment->slots + (size_t)rank * COLL_SLOTS + step * SLOT_STRIDE % COLL_SLOTS;
}

char *coll_small_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    return segment->small_buffers +
           ((size_t)rank * COLL_SMALL_BUFFERS + step * SMALL_STRIDE % COLL_SMALL_BUFFERS) * COLL_SMALL;
}

char *coll_eager_of(const struct coll_segment *segment, int rank, uint64_t step)
{
    return segment->eager_buffers +
           ((size_t)rank * COLL_EAGER_BUFFERS + step % COLL_EAGER_BUFFERS) * segment->eager_bytes;
}

void coll_lay_out(struct coll_segment *segment, const struct shm *shm, int index)
{
    segment->words = shm_coll_at(shm, index);
    segment->slots = (char *)segment->words + COLL_WORDS;
    segment->small_buffers = segment->slots + control_slots_bytes(shm->n);
    segment->eager_buffers = segment->small_buffers + small_buffers_bytes(shm->n);
    segment->fragments = segment->eager_buffers + eager_buffers_bytes(shm->n);
    segment->eager_bytes = eager_bytes(shm->n);
    segment->fragment_bytes = fragment_bytes(shm->n);
}

/* Buffers of ranks that the group does not have stay without. */
bool coll_take_memory(struct shm *shm, int index, int n)
{
    struct coll_segment at;
    coll_lay_out(&at, shm, index);
    const char *begin = shm_coll_at(shm, index);
    const size_t of_all = (size_t)shm->n, ranks = (size_t)n;
    const struct {
        const char *at;
        size_t bytes;
    } parts[] = {
        {begin, COLL_WORDS + control_slots_bytes(n)},
        {at.small_buffers, small_buffers_bytes(n)},
        {at.eager_buffers, eager_buffers_bytes(shm->n) / of_all * ranks},
        {at.fragments, fragments_bytes(shm->n) * ranks},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!shm_coll_reserve(shm, index, (size_t)(parts[i].at - begin), parts[i].bytes)) return false;
    return true;
}
