/* Collectives start in the same order on all ranks, whatever the order of reports and the speed of the network.  In
 * slot t, phase p of bucket t - 2 p starts, the highest phase first.  With two phases, A and B:
 *
 *     header  A0  A1  B0 A2  B1 A3  B2  B3
 *
 * So two buckets are in flight at a time, and a bucket's next phase need not wait for the end of the iteration.  A
 * phase starts once the one before it has completed, a bucket once its gradients are there.
 *
 * The header counts the ranks that have not joined; there is one only if ranks may join.  The trailer says whether a
 * rank fails the iteration, and which gradients were used.  It starts just before the last bucket, when a rank knows
 * both, so that its latency is hidden behind the bucket. */
#include "reducer_sequence.h"

#include <string.h>

#include "reducer_scheme.h"

enum { SLOTS_PER_PHASE = 2 };

tutti_opts reducer_opts(const struct tutti_reducer *reducer, tutti_work **work)
{
    return (tutti_opts){.group = reducer->group,
                        .async_op = work,
                        .stream = reducer->opts.stream,
                        .timeout_ms = reducer->opts.timeout_ms};
}

tutti_opts reducer_control_opts(const struct tutti_reducer *reducer, tutti_work **work)
{
    return (tutti_opts){
        .group = reducer->control, .async_op = work, .timeout_ms = reducer->opts.timeout_ms, .group_rank = true};
}

void sequence_fail(struct tutti_reducer *reducer, int status)
{
    if (status == TUTTI_OK || reducer->status != TUTTI_OK) return;
    reducer->status = status;
    snprintf(reducer->text, sizeof reducer->text, "%s", tutti_last_error());
}

void sequence_abort(struct tutti_reducer *reducer, const char *reason)
{
    tutti_abort(reducer->group, reason);
    if (reducer->has_control) tutti_abort(reducer->control, reason);
}

void sequence_give_up(struct tutti_reducer *reducer, int status)
{
    sequence_fail(reducer, status);
    if (status != TUTTI_OK) sequence_abort(reducer, reducer->text);
}

/* An operation that no backend has starts on no rank.  One that is refused for another reason, such as a tensor on a
 * wrong device, may have started on the others.  What a hook returns is its own. */
void sequence_fail_start(struct tutti_reducer *reducer, int status)
{
    if (status == TUTTI_ERR_UNSUPPORTED && reducer->opts.hook == NULL)
        sequence_fail(reducer, status);
    else
        sequence_give_up(reducer, status);
}

void sequence_wait(struct tutti_reducer *reducer, tutti_work **work, bool is_cuda)
{
    if (*work == NULL) return;
    if (!is_cuda) {
        sequence_fail(reducer, tutti_wait(work, TUTTI_DEFAULT_TIMEOUT));
        return;
    }
    sequence_fail(reducer, tutti_wait_stream(*work, reducer->opts.stream));
    tutti_work_free(*work);
    *work = NULL;
}

void sequence_reset(struct tutti_reducer *reducer)
{
    reducer->cursor = (struct cursor){0, reducer->most_phases - 1, false};
}

/* Starts the header of an iteration. */
static void begin(struct tutti_reducer *reducer)
{
    tutti_opts opts = reducer_control_opts(reducer, &reducer->header);
    reducer->cursor.has_begun = true;
    if (!reducer->opts.join || reducer->is_shadow) return; /* a joined rank has done it */
    reducer->active = 1;
    sequence_fail_start(reducer, tutti_all_reduce(tutti_view(&reducer->active, 1), TUTTI_SUM, &opts));
}

static void start_trailer(struct tutti_reducer *reducer)
{
    tutti_opts opts = reducer_control_opts(reducer, &reducer->trailer);
    int32_t *used = reducer->agreed + 1;
    for (int i = 0; i < reducer->n; i++) used[i] = reducer->parameter[i].is_used && !reducer->is_shadow;
    int64_t n = reducer->opts.find_unused ? reducer->n + 1 : 1;
    sequence_fail_start(reducer, tutti_all_reduce(tutti_view(reducer->agreed, n), TUTTI_SUM, &opts));
}

/* True if the bucket's next phase can start. */
static bool is_due(struct tutti_reducer *reducer, struct bucket *bucket, int phase, bool may_wait)
{
    if (phase == 0) return bucket->pending == 0;
    if (bucket->work != NULL && !may_wait && !tutti_work_is_completed(bucket->work)) return false;
    sequence_wait(reducer, &bucket->work, false);
    return true;
}

static void start_phase(struct tutti_reducer *reducer, int index, int phase)
{
    struct bucket *bucket = &reducer->bucket[index];
    if (phase == 0 && index == reducer->buckets - 1) start_trailer(reducer);
    if (reducer->status != TUTTI_OK) return;
    sequence_fail_start(reducer, bucket->scheme->start(reducer, bucket, phase, &bucket->work));
}

/* Returns the bucket of the cursor's step, or -1 if there is none at this step. */
static int bucket_at(const struct tutti_reducer *reducer)
{
    int index = reducer->cursor.slot - SLOTS_PER_PHASE * reducer->cursor.phase;
    if (index < 0 || index >= reducer->buckets) return -1;
    return reducer->cursor.phase < scheme_phases(reducer, reducer->bucket[index].scheme) ? index : -1;
}

static void go_to_next(struct tutti_reducer *reducer)
{
    struct cursor *cursor = &reducer->cursor;
    if (cursor->phase-- > 0) return;
    cursor->phase = reducer->most_phases - 1;
    cursor->slot++;
}

void sequence_advance(struct tutti_reducer *reducer, bool may_wait)
{
    int slots = reducer->buckets + SLOTS_PER_PHASE * (reducer->most_phases - 1);
    if (!reducer->cursor.has_begun) begin(reducer);
    for (; reducer->status == TUTTI_OK && reducer->cursor.slot < slots; go_to_next(reducer)) {
        int index = bucket_at(reducer), phase = reducer->cursor.phase;
        if (index < 0) continue;
        if (!is_due(reducer, &reducer->bucket[index], phase, may_wait)) return;
        if (reducer->status == TUTTI_OK) start_phase(reducer, index, phase);
    }
}
