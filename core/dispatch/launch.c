#include "dispatch/launch.h"

#include <stdio.h>

#include "base/error.h"
#include "dispatch/hazards.h"
#include "dispatch/issue.h"
#include "dispatch/packing.h"
#include "dispatch/route.h"
#include "group/group_fail.h"
#include "progress/engine_step.h"
#include "progress/engine_wait.h"
#include "tool/tool.h"

static int dispatch(struct tutti_work *work)
{
    packing_fill(work->packing);
    return route_work(work);
}

/* Dispatches a work that was blocked.  Its call has returned, so an error leaves the ranks out of step: the group
 * fails. */
static void dispatch_late(struct tutti_work *work)
{
    record_start(group_record(work->group, work->op.sequence), work->record, engine_time_ns(work->engine));
    int status = dispatch(work);
    if (status >= 0) return;
    work->request.owner = NULL; /* no backend owns it */
    group_fail(work->group, status, error_text(), true);
}

/* Launches unblocked works.  Each of them may end other works, or all if it fails the group, so the list is read
 * again. */
void launch_unblocked(struct tutti_group *first)
{
    struct tutti_group *group;
    TAILQ_FOREACH(group, &first->tree, tree_link)
    {
        struct tutti_work *work, *next;
        for (work = TAILQ_FIRST(&group->works); work != NULL && !group->failed && !group->shut; work = next) {
            next = TAILQ_NEXT(work, group_link);
            if (work->started) continue;
            if (hazards_must_wait(work)) {
                if (hazards_hold_others(work)) break;
                continue;
            }
            group->engine->n_blocked--;
            if (next != NULL) next->references++;
            dispatch_late(work);
            if (next == NULL) continue;
            struct tutti_work *after = next;
            if (work_ended(next)) next = TAILQ_FIRST(&group->works);
            work_release_locked(after);
        }
    }
}

/* True if a work is staged.  It is dispatched at once, because it takes its places among the collectives then.  Its
 * parts wait instead. */
static bool is_staged(const struct tutti_work *work)
{
    bool tensors = work->op.n_in + work->op.n_out > 0;
    return tensors && work->group->stager.backend != NULL && work->entry == NULL &&
           group_device_of(work->group, &work->op) == 1;
}

/* Waits for staged operations if op goes to a backend that keeps the order of its operations itself: such a backend
 * cannot order op after operations that are staged elsewhere. */
static void wait_for_staged(struct tutti_group *group, const tutti_op *op)
{
    struct tutti_work *work = TAILQ_FIRST(&group->works);
    if (group_device_of(group, op) == 0 || !group_takes_device(group->entries[1][0].backend, 1)) return;
    while (work != NULL) {
        if (work->stage == NULL) {
            work = TAILQ_NEXT(work, group_link);
            continue;
        }
        work->references++;
        engine_wait(group->engine, work, CLOCK_NEVER); /* it ends by its own deadline */
        work_release_locked(work);
        work = TAILQ_FIRST(&group->works);
    }
}

/* Launches a work.  Takes it off the lists again and frees it if that fails. */
static int launch(struct tutti_work *work)
{
    struct tutti_group *group = work->group;
    issue_enlist(work);
    if (!is_staged(work) && hazards_must_wait(work)) {
        group->engine->n_blocked++;
    } else {
        int status = dispatch(work);
        if (status < 0) {
            issue_undo(work);
            return status;
        }
    }
    issue_count(group, &work->op);
    issue_advance(group, &work->op, work->fingerprint);
    return TUTTI_OK;
}

int launch_after_staged(struct tutti_group *group, const tutti_op *op)
{
    if (group->stager.backend == NULL) return TUTTI_OK;
    wait_for_staged(group, op);
    return issue_check_usable(group, op); /* the group may have failed meanwhile */
}

int launch_explain_loss(struct tutti_group *group, const tutti_op *op)
{
    char text[ERROR_TEXT_MAX];
    snprintf(text, sizeof text, "%s", error_text());
    /* The peer may have left because of another rank's failure.  This round handles its control message, if it has
     * arrived. */
    engine_step(group->engine);
    if (group->reported_status != TUTTI_OK)
        group_fail(group, TUTTI_ERR_PEER_LOST, text, true); /* with the cause that was reported */
    int status = group->failed ? TUTTI_OK : issue_check_usable(group, op);
    if (!group->failed) return status != TUTTI_OK ? status : error_set(TUTTI_ERR_PEER_LOST, "%s", text);
    group->failure_returned = true;
    return error_set(group->failed, "%s", group->failed_text != NULL ? group->failed_text : text);
}

int launch_operation(struct tutti_group *group, tutti_op *op, uint64_t fingerprint, const tutti_opts *opts, bool async,
                     struct tutti_work **work)
{
    int status = launch_after_staged(group, op);
    if (status == TUTTI_OK) status = issue_new(group, op, fingerprint, opts, async, work);
    if (status == TUTTI_OK) {
        tool_issued(group->tool, &(*work)->op);
        op->tool = (*work)->op.tool;
        status = launch(*work);
    }
    if (status != TUTTI_OK) tool_ended(op, status, error_text(), false);
    return status == TUTTI_ERR_PEER_LOST ? launch_explain_loss(group, op) : status;
}

int launch_part(struct tutti_group *group, tutti_op *op, const tutti_opts *opts, struct tutti_work *parent,
                struct packing *packing, bool *staged)
{
    struct tutti_work *work = NULL;
    int status = issue_check_usable(group, op);
    if (status == TUTTI_OK) status = issue_new(group, op, fingerprint_of(op, group->size), opts, true, &work);
    if (status != TUTTI_OK) {
        packing_free(packing);
        return status;
    }
    work->packing = packing;
    work->parent = parent;
    parent->parts++;
    tool_issued(group->tool, &work->op);
    op->tool = work->op.tool;
    status = launch(work);
    *staged = status == TUTTI_OK && work->stage != NULL;
    if (status == TUTTI_OK)
        work_release_locked(work); /* the caller has the parent's handle only */
    else
        parent->parts--;
    if (status != TUTTI_OK) tool_ended(op, status, error_text(), false);
    return status;
}
