#include "dispatch/issue.h"

#include "base/error.h"
#include "dispatch/hazards.h"
#include "dispatch/packing.h"

/* Gives the work a record.  Probes have none: a program that polls would fill the ring with them. */
static void record(struct tutti_work *work)
{
    if (work->op.kind == TUTTI_COPY || work->op.kind == TUTTI_PROBE) return;
    work->record =
        record_issue(group_record(work->group, work->op.sequence), &work->engine->now_ns, &work->op, work->fingerprint);
}

int issue_new(struct tutti_group *group, tutti_op *op, uint64_t fingerprint, const tutti_opts *opts, bool async,
              struct tutti_work **out)
{
    struct tutti_work *work = work_take(group->engine);
    if (work == NULL)
        return error_set(TUTTI_ERR_NO_MEMORY, "out of memory for %s in group %s", tutti_kind_find(op->kind)->name,
                         group->name);
    work->fingerprint = issue_place(group, op, fingerprint, opts, async);
    issue_fill(work, group, op, opts);
    int status = issue_detach(work);
    if (status != TUTTI_OK) {
        work_release_locked(work);
        return status;
    }
    record(work);
    *out = work;
    return TUTTI_OK;
}

void issue_enlist(struct tutti_work *work)
{
    hazards_enlist(work);
    issue_enlist_message(work);
    work->references++; /* reference of the caller */
}

void issue_undo(struct tutti_work *work)
{
    work_delist(work);
    record_undo(group_record(work->group, work->op.sequence), work->record);
    packing_free(work->packing);
    work->references = 1;
    work_release_locked(work);
}
