/* Detects whether the cores of a group's two ranks share a cache.
 *
 * If they do, copy-in/copy-out through a fragment on two cores is faster than a single-copy read by the kernel.  If
 * not, each line crosses twice and the single-copy read is faster.  If only one rank would read, or none may, fragments
 * are filled with non-temporal stores instead (copy_in.c).  The cores of a virtual machine may move, so the topology is
 * measured by the cost of filling fragments.  Both ranks must use the same result.  See
 * docs/benchmarks/shared-memory.md.
 *
 * Rank 0 measures.  If it finds a changed result before it posts step f, it publishes a word that is valid from step
 * f + 1 on.  The other rank reads the words before it posts a step k with its fragment, which requires that all have
 * posted step k - 1 (COLL_FRAGMENTS is 2: coll.h).  A rank that reaches step f + 1 or a later one has therefore seen
 * rank 0 in step f, and the word.  A rank in an earlier step needs the previous word.  There are two words, and the
 * older one is overwritten once all have reached the step from which the newer one is valid.
 */
#include "tcp/shm/coll/parts.h"

enum {
    SEPARATE_PS = 100, /* above this cost in ps per byte into a fragment, the cores have separate caches */
    SHARED_PS = 75,    /* at or below this cost they share a cache again */
    TRY_BITS = 6       /* with separate caches, a fraction of 2^-TRY_BITS of the operations tries the shared path */
};

_Static_assert(COLL_FRAGMENTS == 2, "a rank that may fill a fragment has seen all others in the step before");

/* Returns a word: the step from which it is valid, times 2, plus 1 if the caches are separate. */
static uint64_t load_word(const struct coll_segment *segment, int i)
{
    /* relaxed: the value was stored before a step that this rank has acquired, see above */
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

static bool are_separate(const struct coll_segment *segment, uint64_t step)
{
    int last = newer_index(segment);
    uint64_t late = load_word(segment, last), early = load_word(segment, !last);
    return (valid_from(late) <= step ? late : early) & 1;
}

/* True if a step tries the shared path.  Without trials, ranks on the separate path would not notice a change. */
static bool is_trial(uint64_t step)
{
    return step * UINT64_C(0x9e3779b97f4a7c15) >> (64 - TRY_BITS) == 0;
}

static void publish_if_changed(struct coll_segment *segment, uint64_t step)
{
    int late = newer_index(segment);
    uint64_t word = load_word(segment, late);
    bool separate = word & 1, found = segment->fragment_ps > (separate ? SHARED_PS : SEPARATE_PS);
    if (found == separate || segment->all_in < valid_from(word)) return;
    /* relaxed: the next step is stored with release */
    atomic_store_explicit(&segment->cache_words[!late], (step + 1) << 1 | found, memory_order_relaxed);
}

bool coll_cache_is_shared(struct coll_segment *segment, const struct coll_op *op)
{
    if (segment->rank == 0) publish_if_changed(segment, op->first);
    return !are_separate(segment, op->first) || is_trial(op->first);
}

static void update_estimate(struct coll_segment *segment, size_t bytes, uint64_t ns)
{
    /* The initial estimate bounds the effect of the first measurement, which includes page faults. */
    uint32_t known = segment->fragment_ps != 0 ? segment->fragment_ps : SHARED_PS;
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
