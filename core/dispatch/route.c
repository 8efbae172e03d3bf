#include "dispatch/route.h"

#include "base/dtype.h"
#include "base/error.h"
#include "base/log.h"
#include "dispatch/dispatch.h"
#include "dispatch/stage.h"
#include "op/fingerprint.h"
#include "op/op.h"
#include "progress/work.h"

static int try_entry(struct tutti_work *work, const struct backend_entry *entry)
{
    if (!stage_is_needed(entry, &work->op)) return dispatch_through(work, entry);
    if (op_is_open(&work->op))
        return error_set(TUTTI_ERR_UNSUPPORTED,
                         "%s supports neither probes nor receives of any tag or of unknown size on this device",
                         entry->backend->name);
    return stage_begin(work, entry);
}

int route_work(struct tutti_work *work)
{
    struct tutti_group *group = work->group;
    int device = group_device_of(group, &work->op);
    char why[ERROR_TEXT_MAX / 2]; /* the first backend's own message */
    why[0] = '\0';                /* clearing the whole array would cost more than the rest of the function */
    work->started = true;
    if (work->entry != NULL) return dispatch_through(work, work->entry);
    for (int i = 0; i < group->n_entries[device]; i++) {
        struct backend_entry *entry = &group->entries[device][i];
        unsigned errors = error_count();
        int status = try_entry(work, entry);
        if (status != TUTTI_ERR_UNSUPPORTED) return status;
        if (error_count() != errors && why[0] == '\0') snprintf(why, sizeof why, ": %s", error_text());
        if (i + 1 < group->n_entries[device] && !entry->fallback_logged) {
            entry->fallback_logged = true;
            log_write(LOG_INFO, LOG_OP, "group %s: %s of %s is not supported by %s; using %s instead", group->name,
                      tutti_kind_find(work->op.kind)->name, dtype_name(work->op.dtype), entry->backend->name,
                      group->entries[device][i + 1].backend->name);
        }
    }
    return error_set(TUTTI_ERR_UNSUPPORTED, "%s on %s %s is not supported by backend %s of group %s%s",
                     tutti_kind_find(work->op.kind)->name, device == 0 ? "CPU" : "CUDA", dtype_name(work->op.dtype),
                     group->backend_text, group->name, why);
}
