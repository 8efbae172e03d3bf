#include "group/group_check.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "group/default_group.h"
#include "group/group.h"
#include "group/group_fail.h"

static int check_forked(const struct tutti_group *group)
{
    if (!engine_is_forked(group->engine)) return TUTTI_OK;
    return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                     "group %s was made before fork(); a child cannot use its parent's groups", group->name);
}

struct tutti_group *group_for_call(const struct tutti_group *group)
{
    struct tutti_group *found = default_group_or(group);
    if (found == NULL || check_forked(found) != TUTTI_OK) return NULL;
    /* acquire: pairs with group_settle, which opens the backends before its release store */
    if (atomic_load_explicit(&found->pending, memory_order_acquire)) group_settle(found);
    return found;
}

int group_check_open(const struct tutti_group *group)
{
    int status = check_forked(group);
    if (status != TUTTI_OK) return status;
    if (group->shut) return error_set(TUTTI_ERR_ABORTED, "group %s has been destroyed with its world", group->name);
    return TUTTI_OK;
}

int group_check_usable(struct tutti_group *group, const char *doing)
{
    int status = group_check_open(group);
    if (status != TUTTI_OK) return status;
    if (group->failed)
        return error_set(TUTTI_ERR_ABORTED, "group %s failed before: %s: %s", group->name, error_name(group->failed),
                         group->failed_text != NULL ? group->failed_text : "");
    if (group->lost_text != NULL) {
        char text[ERROR_TEXT_MAX];
        snprintf(text, sizeof text, "%s after #%" PRIu64 " of group %s: %s", doing, group->sequence, group->name,
                 group->lost_text);
        group_fail(group, TUTTI_ERR_PEER_LOST, text, true);
        group->failure_returned = true; /* this call returns the failure */
        return error_set(group->failed, "%s", group->failed_text != NULL ? group->failed_text : text);
    }
    return TUTTI_OK;
}

int group_check_collective(struct tutti_group *group, const char *doing)
{
    if (!group->failed || group->failure_returned || group->shut || engine_is_forked(group->engine)) {
        group->in_collective = true;
        int status = group_check_usable(group, doing);
        group->in_collective = false;
        return status;
    }
    group->failure_returned = true;
    return error_set(group->failed, "%s", group->failed_text != NULL ? group->failed_text : "");
}
