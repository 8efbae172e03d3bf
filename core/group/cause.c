#include "group/cause.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "op/control_message.h"
#include "progress/work.h"
#include "store/store_impl.h"

enum { OFFER_MS = 300 };

bool cause_may_be_elsewhere(int status)
{
    return status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_STORE || status == TUTTI_ERR_ABORTED;
}

static bool names_as_lost(const char *text, int rank)
{
    char lost[32];
    snprintf(lost, sizeof lost, "rank %d is lost: ", rank);
    return strstr(text, lost) != NULL;
}

/* True if the cause is the loss of this rank itself: both sides of a partition report the other one. */
static bool is_about_this_rank(const struct tutti_group *group, const char *text)
{
    return names_as_lost(text, group->global_ranks[group->rank]);
}

static bool is_collective(const struct tutti_group *group)
{
    const struct tutti_work *work;
    TAILQ_FOREACH(work, &group->works, group_link)
    {
        if (!work->point_to_point) return true;
    }
    return group->in_collective;
}

/* True if rank 0 must be gone, because the store that it hosts is, and the collective that fails needs it.  Rank 0
 * itself ends the store only once the others know of a failure (failure_broadcast.h). */
static bool rank0_is_gone(const struct tutti_group *group, int answer)
{
    if (answer != TUTTI_ERR_STORE || !group->root->rank0_hosts_store || group->global_ranks[group->rank] == 0)
        return false;
    return group->local_of != NULL && group->local_of[0] >= 0 && is_collective(group);
}

static int blame_rank0(const struct tutti_group *group, int status, char text[ERROR_TEXT_MAX])
{
    char what[160];
    if (names_as_lost(text, 0)) return status;
    log_write(LOG_INFO, LOG_GROUP, "group %s: %s, and rank 0's store has ended", group->name, text);
    snprintf(what, sizeof what, "group %s", group->name);
    if (!TAILQ_EMPTY(&group->works)) work_describe(TAILQ_FIRST(&group->works), what, sizeof what);
    snprintf(text, ERROR_TEXT_MAX, "%s: rank 0 is lost: the store that it hosts has ended", what);
    return TUTTI_ERR_PEER_LOST;
}

static size_t encode(const struct tutti_group *group, int status, const char *text, uint8_t wire[CONTROL_BYTES])
{
    struct control_message message = {.type = CONTROL_FAILED, .status = status, .given_up = group->given_up};
    snprintf(message.text, sizeof message.text, "%s", text);
    return control_message_encode(&message, wire);
}

int cause_settle(struct tutti_group *group, int status, char text[ERROR_TEXT_MAX])
{
    uint8_t mine[CONTROL_BYTES], first[CONTROL_BYTES];
    char key[48], before[ERROR_TEXT_MAX];
    struct control_message message;
    size_t bytes = 0, n = encode(group, status, text, mine);
    if (group->store == NULL || group->size < 2) return status;
    snprintf(key, sizeof key, "failure/%" PRIi64, group->root->turn);
    snprintf(before, sizeof before, "%s", error_text()); /* store_offer must not change this call's error text */
    int answer = store_offer(group->store, key, mine, n, first, sizeof first, &bytes, OFFER_MS);
    error_set(status, "%s", before);
    if (!cause_may_be_elsewhere(status)) return status;
    if (rank0_is_gone(group, answer)) return blame_rank0(group, status, text);
    if (answer != TUTTI_OK) return status;
    if (bytes > sizeof first || !control_message_parse(first, bytes, &message)) return status;
    if (message.type != CONTROL_FAILED || message.status >= 0) return status;
    if ((bytes == n && memcmp(first, mine, n) == 0) || is_about_this_rank(group, message.text)) return status;
    log_write(LOG_INFO, LOG_GROUP, "group %s: %s, as a consequence of: %s", group->name, text, message.text);
    group->given_up = message.given_up;
    snprintf(text, ERROR_TEXT_MAX, "%s", message.text);
    return message.status;
}
