/* Makes a smaller group of the survivors of a group: a meeting (meeting.h) whose members keep their connections.
 *
 * Ranks that nobody knows to be gone are waited for as long as an operation would be.  They may be computing, and are
 * notified of the failure by their next call.  A rank whose timeout has passed decides that no rank survives.
 *
 * Two ranks that have both entered but have lost each other cannot be in one group.  The one with the greater number is
 * left out, and gets an error. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/text.h"
#include "group/group_check.h"
#include "group/group_id.h"
#include "group/meeting.h"
#include "group/shrink.h"
#include "group/subgroup.h"
#include "progress/engine.h"
#include "state/group_state.h"

enum { KEY = 64 };

static int report_no_survivors(const struct meeting *meeting)
{
    const struct tutti_group *group = meeting->group;
    char late[300];
    struct text text = text_in(late, sizeof late);
    const struct attendee *own = meeting_log_find(&meeting->log, group->rank);
    for (int rank = 0; own != NULL && own->in && rank < group->size; rank++) {
        const struct attendee *other = meeting_log_find(&meeting->log, rank);
        if (other != NULL && (other->in || other->lost || other->late || other->dead)) continue;
        text_print(&text, "%srank %d", text.at > late ? ", " : "", group->global_ranks[rank]);
    }
    if (text.at > late)
        return error_set(TUTTI_ERR_TIMEOUT,
                         "shrink_group of group %s: these have not called it and are not known to be lost: %s",
                         group->name, late);
    return error_set(TUTTI_ERR_TIMEOUT,
                     "shrink_group of group %s: the other ranks have given up waiting for rank %d or for others",
                     group->name, group->global_ranks[group->rank]);
}

/* Opens the group of those who stay, as a subgroup. */
static int open_smaller(const struct meeting *meeting, uint64_t number, tutti_group **smaller)
{
    struct tutti_group *group = meeting->group;
    const struct attendee *own = meeting_log_find(&meeting->log, group->rank);
    if (own == NULL || !attendee_stays(own))
        return error_set(
            TUTTI_ERR_ABORTED,
            "shrink_group: the survivors of group %s continue without this rank (%d), which others lost or gave up",
            group->name, group->global_ranks[group->rank]);
    int *ranks = calloc((size_t)group->size, sizeof *ranks), n = 0;
    if (ranks == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "shrink_group: out of memory for %d ranks", group->size);
    for (int rank = 0; rank < group->size; rank++) {
        const struct attendee *other = meeting_log_find(&meeting->log, rank);
        if (other != NULL && attendee_stays(other)) ranks[n++] = group->global_ranks[rank];
    }
    uint64_t id = group_id_mix(group_id_mix(group->id, UINT64_C(0x736872696e6b)), number);
    int status = subgroup_open(group, ranks, n, &(struct subgroup_id){.id = id, .key = id, .survivors = true}, 0,
                               &(tutti_group_opts){.members_only = true}, smaller);
    free(ranks);
    return status;
}

static int meet(struct meeting *meeting, uint64_t number, tutti_group **smaller)
{
    int status = meeting_hold(meeting);
    if (status != TUTTI_OK) return error_prefix(status, "shrink_group of group %s", meeting->group->name);
    return meeting->log.none ? report_no_survivors(meeting) : open_smaller(meeting, number, smaller);
}

int shrink_group(struct tutti_group *group, int64_t timeout_ms, tutti_group **smaller)
{
    char key[KEY];
    engine_lock(group->engine);
    int status = group_check_open(group);
    uint64_t number = status == TUTTI_OK ? ++group->shrinks : 0;
    engine_unlock(group->engine);
    if (status != TUTTI_OK) return status;
    int64_t *numbers = calloc((size_t)group->size, sizeof *numbers);
    if (numbers == NULL) return error_set(TUTTI_ERR_NO_MEMORY, "out of memory to shrink group %s", group->name);
    for (int rank = 0; rank < group->size; rank++) numbers[rank] = rank;
    snprintf(key, sizeof key, "shrink/%016" PRIx64 "/%" PRIu64, group->id, number);
    struct meeting meeting = {.store = group->store,
                              .key = key,
                              .what = "shrink_group",
                              .group = group,
                              .numbers = numbers,
                              .n_numbers = group->size,
                              .number = group->rank,
                              .old_rank = group->rank,
                              .over_links = true,
                              .timeout_ms = timeout_ms};
    status = meet(&meeting, number, smaller);
    meeting_end(&meeting);
    free(numbers);
    return status;
}
