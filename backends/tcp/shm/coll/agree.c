/* The measured choice of an operation's way, which all ranks of a group make alike (docs/measured-choice.md).
 *
 * All ranks count the calls of each kind and size class alike, because they make the same calls in the same order. Rank
 * 0 alone measures.  In the last call of a span, before it posts a step, it publishes a word: the way of the next span,
 * and the call at which that one ends.  In the first call of the next span a rank waits until all ranks have posted the
 * step before, and reads the word.  Rank 0 has published it by then.
 *
 * Rank 0 may run ahead of the others, for example as the root of a broadcast.  Therefore it waits in the same way
 * before the first timed call and before it publishes, so that the time includes the others' work.  When it publishes,
 * all ranks have thus begun the call before, and have read the previous word, because a span has at least four calls.
 *
 * Where ranks share cores, the time of a call says more about the scheduler than about a way.  There the ranks' work is
 * measured instead: the time that all of them together copy and reduce, but not wait.  Each rank counts its own in the
 * segment, and rank 0 adds up the counts before it publishes.
 */
#include "tcp/shm/coll/parts.h"

enum {
    WAY_BITS = 3,         /* of a word; the end of the span follows */
    TIMED_MAX = 15,       /* maximum calls of a span that may be timed, of small operations */
    SPAN_MIN = 4,         /* minimum calls of a span */
    UNCOUNTED = 2,        /* last calls of a span, whose work rank 0 does not await */
    BESIDE_MIN = 1 << 20, /* minimum bytes of an operation that leaves the cores to the program */
    BESIDE = COLL_WAY(COLL_DIRECT, 0)
};

_Static_assert(CHOICE_WAYS == 1 << WAY_BITS, "a way fits its bits");
_Static_assert(SPAN_MIN > UNCOUNTED + 1, "the work of at least one call is counted, and not that of the first one");

struct coll_class *coll_class_of(const struct coll_segment *segment, const struct coll_op *op)
{
    return &segment->classes[(int)op->kind * CHOICE_CLASSES + choice_class(op->in_bytes)];
}

static _Atomic uint64_t *word_of(const struct coll_segment *segment, const struct coll_class *class)
{
    return &segment->words[class - segment->classes];
}

static bool measures_work(const struct coll_segment *segment)
{
    return segment->shm->shares_cores;
}

/* Returns the size class. */
static int size_class(const struct coll_segment *segment, const struct coll_class *class)
{
    return (int)(class - segment->classes) % CHOICE_CLASSES;
}

/* Returns the operations that use each part of the fragment buffers once. */
static int pass_of(const struct coll_op *op)
{
    return op->parts > 0 ? COLL_FRAGMENTS * COLL_PARTS / op->parts : 1;
}

/* Returns the calls at the end of a span that may be timed: all of a short span but the first one.  Rank 0 begins them
 * when the others have caught up.  If it can run far ahead then, they are more, because at first the others wait for
 * its data. */
static int timed_calls(const struct coll_segment *segment, const struct coll_op *op)
{
    int shortest = choice_short_span(size_class(segment, op->class)), more = pass_of(op) / 4;
    int least = (shortest > SPAN_MIN ? shortest : SPAN_MIN) - 1;
    int calls = more > least && !measures_work(segment) ? more : least;
    return calls < TIMED_MAX ? calls : TIMED_MAX;
}

/* Returns the calls of a way's short span.  The timed ones come after each part of the fragment buffers has been used
 * once: a new part has no memory yet, and after a change of ways its lines are in the caches where the other way has
 * left them. */
static int short_span(const struct coll_segment *segment, const struct coll_op *op, int way)
{
    struct coll_op taken = *op;
    coll_use_way(segment, &taken, way);
    return pass_of(&taken) + timed_calls(segment, &taken);
}

/* Returns the way, or the usual one if the operation cannot take it: it may come from calls that can take others. */
static int possible_way(const struct coll_op *op, int way)
{
    return (op->ways >> way & 1) != 0 ? way : op->usual;
}

static void use_way(const struct coll_segment *segment, struct coll_op *op)
{
    int way = possible_way(op, op->class->way);
    if (way != op->way) coll_use_way(segment, op, way);
}

/* ---- work -------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t *work_of(const struct coll_segment *segment, const struct coll_class *class, int rank)
{
    return &coll_work_of(segment, rank)[class - segment->classes];
}

/* Sets whether this rank counts its work.  A rank has finished all but the last two calls of the span when rank 0 adds
 * up the counts. */
static void start_work(const struct coll_segment *segment, struct coll_op *op, uint64_t timed)
{
    op->counts_work = measures_work(segment) && op->left > UNCOUNTED && op->left <= timed;
    /* relaxed, here and below: published with the last call but one */
    if (op->counts_work && op->left == timed)
        atomic_store_explicit(work_of(segment, op->class, segment->rank), 0, memory_order_relaxed);
}

int64_t coll_work_begin(const struct coll_segment *segment, const struct coll_op *op)
{
    return op->counts_work ? segment->host->now_ns() : 0;
}

void coll_work_end(const struct coll_segment *segment, const struct coll_op *op, int64_t begin_ns)
{
    if (begin_ns == 0) return;
    _Atomic uint64_t *count = work_of(segment, op->class, segment->rank);
    uint64_t ns = (uint64_t)(segment->host->now_ns() - begin_ns);
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + ns, memory_order_relaxed);
}

/* Returns the least time that the ranks' work takes: that of the busiest rank, or of all on this group's share of the
 * host's cores.  Non-temporal stores count a quarter more, for they use memory that others want, too.  So they are
 * taken where they are clearly faster. */
static uint64_t time_work(const struct coll_segment *segment, const struct coll_class *class)
{
    uint64_t all = 0, busiest = 0, n_cores = (uint64_t)shm_count_cores(segment->shm);
    for (int i = 0; i < segment->n; i++) {
        uint64_t ns = atomic_load_explicit(work_of(segment, class, i), memory_order_relaxed);
        all += ns;
        if (ns > busiest) busiest = ns;
    }
    uint64_t shared = all * (uint64_t)segment->shm->n / (n_cores * (uint64_t)segment->n);
    uint64_t ns = shared > busiest ? shared : busiest;
    return COLL_BYPASSES(class->measured.way) ? ns + ns / 4 : ns;
}

/* ---- spans ------------------------------------------------------------------------------------------------- */

/* Returns the way that the next lower class which has kept one has kept, if the ways most likely compare here as they
 * do there, or -1.  All ranks find the same one, because they have made the same calls. */
static int kept_below(const struct coll_segment *segment, const struct coll_op *op)
{
    int class = size_class(segment, op->class);
    for (int below = 1; below <= choice_alike(class); below++)
        if (op->class[-below].kept > 0) return op->class[-below].kept - 1;
    return -1;
}

int coll_next_way(const struct coll_segment *segment, const struct coll_op *op)
{
    int way = op->class->calls > 0 ? op->class->way : kept_below(segment, op);
    return way < 0 ? op->usual : possible_way(op, way);
}

static void start_class(const struct coll_segment *segment, const struct coll_op *op)
{
    struct coll_class *class = op->class;
    choice_start(&class->measured, op->ways, size_class(segment, class), sizeof *class);
    class->way = class->measured.way = (uint8_t)coll_next_way(segment, op);
    class->end = (uint64_t)short_span(segment, op, class->way);
}

void coll_agree_start(const struct coll_segment *segment, struct coll_op *op)
{
    struct coll_class *class = op->class;
    if (class->calls == 0) start_class(segment, op);
    use_way(segment, op);
    op->left = class->end - class->calls;
    uint64_t timed = op->left <= TIMED_MAX ? (uint64_t)timed_calls(segment, op) : 0; /* most calls are not */
    bool leads = segment->rank == 0, times = leads && op->left > 0 && op->left <= timed && !measures_work(segment);
    op->begin_ns = times ? segment->host->now_ns() : 0;
    start_work(segment, op, timed);
    op->agrees = op->left == 0 || (leads && op->left == 1) || (times && class->measured.times == 0);
}

static void adopt(const struct coll_segment *segment, const struct coll_op *op)
{
    struct coll_class *class = op->class;
    /* acquire: pairs with publish */
    uint64_t word = atomic_load_explicit(word_of(segment, class), memory_order_acquire), end = word >> WAY_BITS;
    /* Rank 0 is faulty if the span has ended already.  Then the operation fails later, or the word is of no use. */
    class->end = end >= class->calls ? end : class->calls + CHOICE_STEADY;
    class->way = (uint8_t)(word & (CHOICE_WAYS - 1));
    bool is_long = class->end - class->calls > (uint64_t)short_span(segment, op, class->way);
    if (is_long && class->is_timed) class->kept = class->way + 1;
    class->is_timed = true;
}

/* True if the operation should take the cores' time rather than the shortest time.  The ranks of a large asynchronous
 * operation usually compute beside it, and without spare cores they wait for the progress threads.  Two ranks that read
 * each other's memory use the cores less, and meet three times instead of once a chunk. */
static bool leaves_cores(const struct coll_segment *segment, const struct coll_op *op)
{
    bool is_possible = (op->ways >> BESIDE & 1) != 0;
    return op->async && is_possible && segment->n == 2 && op->in_bytes >= BESIDE_MIN &&
           !shm_have_spare_cores(segment->shm);
}

static void publish(const struct coll_segment *segment, const struct coll_op *op)
{
    struct coll_class *class = op->class;
    struct choice *measured = &class->measured;
    bool leaves = leaves_cores(segment, op);
    /* A program may make few of so large calls, and the way of a lower class is most likely the best one. */
    bool learned = measured->calls == 0 && kept_below(segment, op) == measured->way && !leaves;
    if (measures_work(segment)) {
        uint64_t counted = (uint64_t)(timed_calls(segment, op) - UNCOUNTED);
        choice_add(measured, (int64_t)(time_work(segment, class) / counted));
    } else {
        int64_t waited_ns = segment->host->now_ns() - op->begin_ns;
        if (waited_ns > 0) measured->sum_ns += (uint64_t)waited_ns; /* for the work of the timed calls */
    }
    int ended = short_span(segment, op, measured->way);
    int length = choice_end_span(measured, op->ways, ended);
    if (length == ended) { /* a short one, maybe of another way */
        length = short_span(segment, op, measured->way) * (learned ? CHOICE_REPAY : 1);
        measured->calls += (uint64_t)(length - ended);
    }
    if (leaves) measured->way = BESIDE;
    /* release: pairs with adopt */
    atomic_store_explicit(word_of(segment, class), (class->end + (uint64_t)length) << WAY_BITS | measured->way,
                          memory_order_release);
}

void coll_agree(const struct coll_segment *segment, struct coll_op *op)
{
    op->agrees = false;
    if (op->left == 0) {
        adopt(segment, op);
    } else if (op->left > 1) {
        op->begin_ns = segment->host->now_ns();
    } else {
        publish(segment, op);
        op->begin_ns = 0;
    }
    use_way(segment, op);
}

void coll_agree_done(const struct coll_segment *segment, const struct coll_op *op)
{
    if (op->begin_ns == 0) return;
    atomic_thread_fence(memory_order_seq_cst); /* on x86, until this rank's stores have reached the cache */
    choice_add(&op->class->measured, segment->host->now_ns() - op->begin_ns);
}
