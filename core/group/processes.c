#include "group/processes.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "group/generation.h"
#include "state/group_state.h"

enum { KEY = 48 };

/* Writes the list's key in the store of the group tree's first group.  All later groups have the same processes. */
static void key_of(const struct tutti_group *root, char key[KEY])
{
    snprintf(key, KEY, "process/%" PRIi64, root->turn);
}

int processes_publish(struct tutti_group *group)
{
    char key[KEY];
    int64_t n_arrived = 0;
    int status = tutti_store_add(group->store, "processes", 1, &n_arrived);
    if (status != TUTTI_OK) return status;
    group->turn = (n_arrived - 1) / group->size;
    key_of(group, key);
    return liveness_append(group->store, key, group->rank);
}

/* Replaces the loss of a process by the reason that a failing rank has written.  A rank that fails writes its reason
 * before it ends, so the process that was found may have ended because of another one. */
static int prefer_written(const struct tutti_group *root, int status)
{
    char found[ERROR_TEXT_MAX];
    snprintf(found, sizeof found, "%s", error_text());
    int written = liveness_read_lost(root->store, "world/lost");
    if (written == TUTTI_OK || written == TUTTI_ERR_STORE) return error_set(status, "%s", found);
    return written;
}

int processes_check(struct tutti_group *group)
{
    char key[KEY];
    struct tutti_group *root = group->root;
    struct liveness_list list = root->processes;
    int status = group == root ? liveness_read_lost(root->store, "world/lost") : TUTTI_OK;
    if (status != TUTTI_OK) return status;
    key_of(root, key);
    list.members = group->local_of;
    list.n_members = group->world;
    status = liveness_check_list(&list, root->store, key, root->size);
    root->processes = list;
    if (status == TUTTI_OK && root->generation != NULL && root->generation->launcher != NULL)
        status = generation_check_launcher(root->generation);
    return group == root && status == TUTTI_ERR_PEER_LOST ? prefer_written(root, status) : status;
}
