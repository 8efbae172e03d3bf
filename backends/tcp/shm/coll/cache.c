/* Detects whether the cores of a group's two ranks share a cache.
 *
 * If they do, copy-in/copy-out through a fragment on two cores is faster than a single-copy read by the kernel.  If
 * not, each line crosses twice and the single-copy read is faster.  If only one rank would read, or none may, fragments
 * are filled with non-temporal stores instead (copy_in.c).  The cores of a virtual machine may move, so the topology is
 * measured by the cost of filling fragments, and both ranks must use the same result.  See
 * docs/benchmarks/shared-memory.md.
 *
 * Rank 0 measures.  If it finds, about to post step f, that the result has changed, it publishes a word that is valid
 * from step f + 1 on.  The other rank reads it when it may post a step k with its fragment, which requires that all
 * have posted step k - 1 (COLL_FRAGMENTS is 2: coll.h).  So a rank that reaches step f + 1 or a later one has seen rank
 * 0 in step f, and the word.  A rank in an earlier step needs the previous word.  There are therefore two, and the
 * older one is overwritten once all have reached the step from which the newer one is valid.
 */
#include "tcp/shm/coll/parts.h"

enum {
    FAR_PS = 100, /* ps per byte into a fragment above which cores are far, or at most which near again */
    NEAR_PS = 75,
    TRY_BITS = 6 /* cores are far: a fraction of 2^-TRY_BITS of the operations tries the near path */
};

_Static_assert(COLL_FRAGMENTS == 2, "a rank that may fill a fragment has seen all others in the step before");

/* A word: valid from this step, and whether the cores are far. */
static uint64_t load_word(const struct coll_segment *segment, int i)
{
    /* relaxed: the relevant value was stored before a step that this rank has acquired, see above */
    return atomic_load_explicit(&segment->cache_words[i], memory_order_relaxed);
}

static uint64_t valid_from(uint64_t word)
{
    return word >> 1;
}

static int newer_index(const struct coll_segment *segment)
{
    return valid_from(load_word(segment, 1)) > valid_from(load_word(segment, 0));
}

static bool is_far(const struct coll_segment *segment, uint64_t step)
{
    int last = newer_index(segment);
    uint64_t late = load_word(segment, last), early = load_word(segment, !last);
    return (valid_from(late) <= step ? late : early) & 1;
}

/* Without trials, a rank on the far path would not notice a change. */
static bool is_trial(uint64_t step)
{
    return step * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TRY_BITS) == 0;
}

static void publish_if_changed(struct coll_segment *segment, uint64_t step)
{
    int late = newer_index(segment);
    uint64_t word = load_word(segment, late);
    bool far = word & 1, found = segment->fragment_ps > (far ? NEAR_PS : FAR_PS);
    if (found == far || segment->all_in < valid_from(word)) return;
    /* relaxed: the step is stored afterwards with release */
    atomic_store_explicit(&segment->cache_words[!late], (step + 1) << 1 | found, memory_order_relaxed);
}

bool coll_cache_is_shared(struct coll_segment *segment, const struct coll_op *op)
{
    if (segment->rank == 0) publish_if_changed(segment, op->first);
    return !is_far(segment, op->first) || is_trial(op->first);
}

static void update_estimate(struct coll_segment *segment, size_t bytes, uint64_t ns)
{
    uint32_t known =
        segment->fragment_ps != 0 ? segment->fragment_ps : NEAR_PS; /* the first measurement includes page faults */
    segment->fragment_ps = cost_update(known, bytes, ns);
}

void coll_cache_stored(struct coll_segment *segment, const struct coll_op *op, size_t bytes, uint64_t ns)
{
    if (op->separate != COLL_NO_PATH && segment->rank == 0) update_estimate(segment, bytes, ns);
}

void coll_cache_stepped(struct coll_segment *segment, struct coll_op *op)
{
    if (op->separate == COLL_NO_PATH || segment->rank != 0) return;
    if (op->at == COLL_EAGER_BUFFERS) op->midst_ns = segment->host->now_ns();
    if (op->at < op->steps - 1 || op->at <= COLL_EAGER_BUFFERS) return;
    update_estimate(segment, 2 * (op->bytes - (COLL_EAGER_BUFFERS + 1) * op->chunk),
                    shm_ns_since(segment->host, op->midst_ns));
}
