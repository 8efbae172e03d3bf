/* Nothing is copied to the program's gradients before the trailer has shown that no rank fails the iteration. */
#include "reducer_iteration.h"

#include <stdlib.h>
#include <string.h>

#include "reducer_agree.h"
#include "reducer_fill.h"
#include "reducer_layout.h"
#include "reducer_sequence.h"

enum { ABANDON_MS = 2000, NAMED_MOST = 3 };

bool iteration_is_open(const struct tutti_reducer *reducer)
{
    return reducer->reported > 0;
}

/* ---- reports ----------------------------------------------------------------------------------------------- */

/* Checks a report and marks the parameter, so that no other thread reports it.  Lock held. */
static int begin_report(struct tutti_reducer *reducer, int i, bool skipped)
{
    if (i < 0 || i >= reducer->n)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT, "reducer: there is no parameter %d; the list has 0 to %d", i,
                               reducer->n - 1);
    struct parameter *parameter = &reducer->parameter[i];
    if (skipped && !reducer->opts.find_unused)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "reducer: '%s' was skipped, which needs find_unused; set it in the options",
                               parameter->name);
    if (parameter->report != REPORT_NONE)
        return tutti_set_error(TUTTI_ERR_INVALID_ARGUMENT,
                               "reducer: gradient '%s' was reported twice in an iteration; report it once, after its "
                               "last contribution, or call tutti_reducer_wait between iterations",
                               parameter->name);
    if (reducer->status != TUTTI_OK) return tutti_set_error(reducer->status, "%s", reducer->text);
    parameter->report = REPORT_COPYING;
    if (!skipped) parameter->is_used = true;
    reducer->order[reducer->reported++] = i;
    return TUTTI_OK;
}

/* Puts a parameter's share of the sum into its bucket.  A gradient that was reported since the last reduction counts
 * even if it is not reported in this iteration. */
static int fill(struct tutti_reducer *reducer, struct parameter *parameter)
{
    if (reducer->is_shadow || !parameter->is_used) return fill_zeros(reducer, parameter);
    return fill_gradient(reducer, parameter);
}

/* Marks the parameter as reported, and starts what can start.  Lock held. */
static int end_report(struct tutti_reducer *reducer, struct parameter *parameter, bool skipped)
{
    parameter->report = skipped ? REPORT_SKIPPED : REPORT_READY;
    if (--reducer->bucket[parameter->bucket].pending == 0) sequence_advance(reducer, false);
    return reducer->status;
}

int iteration_report(struct tutti_reducer *reducer, int i, bool skipped)
{
    pthread_mutex_lock(&reducer->lock);
    int status = begin_report(reducer, i, skipped);
    bool sync = reducer->sync;
    pthread_mutex_unlock(&reducer->lock);
    if (status != TUTTI_OK || !sync) return status;
    struct parameter *parameter = &reducer->parameter[i];
    status = fill(reducer, parameter); /* without the lock: threads copy side by side */
    pthread_mutex_lock(&reducer->lock);
    sequence_give_up(reducer, status);
    status = end_report(reducer, parameter, skipped);
    if (status != TUTTI_OK) tutti_set_error(status, "%s", reducer->text);
    pthread_mutex_unlock(&reducer->lock);
    return status;
}

/* ---- the end ----------------------------------------------------------------------------------------------- */

/* Names the parameters that were not reported. */
static int describe_missing(const struct tutti_reducer *reducer, char *text, size_t capacity)
{
    int missing = 0;
    size_t at = (size_t)snprintf(text, capacity, "not reported in this iteration: ");
    for (int i = 0; i < reducer->n; i++) {
        if (reducer->parameter[i].report != REPORT_NONE || missing++ >= NAMED_MOST || at >= capacity) continue;
        at += (size_t)snprintf(text + at, capacity - at, "%s'%.200s'", missing > 1 ? ", " : "",
                               reducer->parameter[i].name);
    }
    if (missing > NAMED_MOST && at < capacity)
        at += (size_t)snprintf(text + at, capacity - at, " and %d more", missing - NAMED_MOST);
    if (at < capacity) snprintf(text + at, capacity - at, "; report them or set find_unused");
    return missing;
}

/* Completes the buckets of gradients that were not reported.  Returns INVALID_ARGUMENT, with a text, if that is an
 * error of this rank; its buckets are sent all the same, because the other ranks wait for them. */
static int complete_reports(struct tutti_reducer *reducer, char *text, size_t capacity)
{
    bool may_miss = reducer->opts.find_unused || reducer->is_shadow;
    for (int i = 0; i < reducer->n; i++) {
        struct parameter *parameter = &reducer->parameter[i];
        if (parameter->report != REPORT_NONE) continue;
        if (may_miss) sequence_give_up(reducer, fill(reducer, parameter));
        reducer->bucket[parameter->bucket].pending--;
    }
    if (may_miss || describe_missing(reducer, text, capacity) == 0) return TUTTI_OK;
    reducer->agreed[0] = 1;
    return TUTTI_ERR_INVALID_ARGUMENT;
}

static bool is_used_anywhere(const struct tutti_reducer *reducer, int i)
{
    return !reducer->opts.find_unused || reducer->agreed[1 + i] > 0;
}

/* Copies a bucket's results to its gradients. */
static int deliver(struct tutti_reducer *reducer, const struct bucket *bucket)
{
    int status = TUTTI_OK;
    for (int k = 0; k < bucket->view.n; k++) {
        int i = bucket->view.parameter[k], result = TUTTI_OK;
        if (is_used_anywhere(reducer, i))
            result = fill_result(reducer, &reducer->parameter[i]);
        else
            fill_restore(&reducer->parameter[i]);
        if (status == TUTTI_OK) status = result;
    }
    return status;
}

/* Waits for the buckets in order, and delivers each while later ones are under way. */
static void collect(struct tutti_reducer *reducer)
{
    bool failed = reducer->agreed[0] > 0;
    for (int b = 0; b < reducer->buckets; b++) {
        struct bucket *bucket = &reducer->bucket[b];
        sequence_wait(reducer, &bucket->work, bucket->view.tensor.device.type != TUTTI_CPU);
        if (reducer->status == TUTTI_OK && bucket->scheme->finish != NULL)
            sequence_give_up(reducer, bucket->scheme->finish(reducer, bucket));
        if (reducer->status == TUTTI_OK && !failed && !reducer->is_shadow)
            sequence_give_up(reducer, deliver(reducer, bucket));
    }
}

/* Prepares the next iteration. */
static void reset(struct tutti_reducer *reducer, bool was_reduced)
{
    for (int i = 0; i < reducer->n; i++) {
        struct parameter *parameter = &reducer->parameter[i];
        parameter->report = REPORT_NONE;
        if (was_reduced) parameter->is_used = false;
        fill_restore(parameter);
    }
    for (int b = 0; b < reducer->buckets; b++) reducer->bucket[b].pending = reducer->bucket[b].view.n;
    reducer->reported = 0;
    reducer->status = TUTTI_OK;
    reducer->agreed[0] = 0;
    sequence_reset(reducer);
}

static bool is_permutation(const struct tutti_reducer *reducer, bool *seen)
{
    memset(seen, 0, (size_t)reducer->n * sizeof *seen);
    for (int at = 0; at < reducer->n; at++) {
        int32_t i = reducer->order[at];
        if (i < 0 || i >= reducer->n || seen[i]) return false;
        seen[i] = true;
    }
    return true;
}

/* Appends the parameters that were not reported, last one first. */
static void complete_order(struct tutti_reducer *reducer)
{
    for (int i = reducer->n - 1; i >= 0; i--)
        if (reducer->parameter[i].report == REPORT_NONE) reducer->order[reducer->reported++] = i;
}

/* Makes buckets of the order in which rank 0 has reported. */
static int rebuild(struct tutti_reducer *reducer)
{
    tutti_opts opts = reducer_control_opts(reducer, NULL);
    bool *seen = (bool *)reducer->offsets; /* rewritten by the assignment */
    complete_order(reducer);
    int status = tutti_broadcast(tutti_view(reducer->order, reducer->n), 0, &opts);
    if (status != TUTTI_OK) return status;
    if (!is_permutation(reducer, seen))
        return tutti_set_error(TUTTI_ERR_MISMATCH, "reducer: rank 0 sent an order that is no permutation of %d",
                               reducer->n);
    reducer->generation = 1;
    reducer_layout_assign(reducer, reducer->order);
    tutti_log("train", TUTTI_LOG_DEBUG, "the buckets of a reducer follow the order of its reports now");
    return TUTTI_OK;
}

static bool may_rebuild(const struct tutti_reducer *reducer)
{
    const tutti_reducer_opts *opts = &reducer->opts;
    return reducer->generation == 0 && !opts->keep_order && (!opts->gradient_as_bucket_view || opts->move_views);
}

/* Returns the failure of the lowest rank that has one.  The trailer has said that there is one. */
static int find_failure(struct tutti_reducer *reducer, int status, const char *text)
{
    if (status != TUTTI_OK) tutti_set_error(status, "%s", text);
    status = reducer_agree(reducer, status);
    return status != TUTTI_OK ? status : tutti_set_error(TUTTI_ERR_MISMATCH, "reducer: a rank failed without a reason");
}

/* Runs the rest of an iteration that is reduced.  Returns its status, with the error message set. */
static int reduce(struct tutti_reducer *reducer)
{
    char missing[REDUCER_TEXT];
    int status = complete_reports(reducer, missing, sizeof missing);
    sequence_advance(reducer, true);
    sequence_wait(reducer, &reducer->header, false);
    sequence_wait(reducer, &reducer->trailer, false);
    collect(reducer);
    if (reducer->status != TUTTI_OK) return tutti_set_error(reducer->status, "%s", reducer->text);
    if (reducer->agreed[0] > 0) return find_failure(reducer, status, missing);
    return may_rebuild(reducer) ? rebuild(reducer) : TUTTI_OK;
}

int iteration_end(struct tutti_reducer *reducer)
{
    int status = reducer->sync ? reduce(reducer) : TUTTI_OK;
    if (status == TUTTI_OK && reducer->sync && !reducer->is_shadow) reducer->iterations++;
    reset(reducer, reducer->sync);
    return status;
}

/* ---- giving up --------------------------------------------------------------------------------------------- */

static void abandon(struct tutti_reducer *reducer, tutti_work **work, int64_t *left_ms)
{
    if (*work == NULL) return;
    while (!tutti_work_is_completed(*work)) {
        if (tutti_work_wait(*work, 1) != TUTTI_ERR_TIMEOUT || *left_ms < 0) break;
        if (--*left_ms == 0) sequence_abort(reducer, "a reducer was destroyed in the middle of an iteration");
    }
    tutti_work_wait(*work, TUTTI_DEFAULT_TIMEOUT);
    tutti_work_free(*work);
    *work = NULL;
}

void iteration_abandon(struct tutti_reducer *reducer)
{
    int64_t left_ms = ABANDON_MS;
    abandon(reducer, &reducer->header, &left_ms);
    abandon(reducer, &reducer->trailer, &left_ms);
    for (int b = 0; b < reducer->buckets; b++) abandon(reducer, &reducer->bucket[b].work, &left_ms);
    for (int i = 0; i < reducer->n; i++) free(reducer->parameter[i].saved);
}
