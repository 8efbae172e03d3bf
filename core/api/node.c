/* The rank of this process on its node, and the rank of the node: from the launcher, else from the backend. */
#include "group/default_group.h"
#include "state/group_state.h"

/* Counts the ranks below `end` in the default group that share this rank's host.  Returns -1 if the backend does not
 * know. */
static int count_local(const struct tutti_group *group, int end)
{
    int n = 0, host = tutti_get_host(group, group->rank);
    if (host < 0) return -1;
    for (int i = 0; i < end; i++) n += tutti_get_host(group, i) == host;
    return n;
}

int tutti_get_local_rank(void)
{
    const struct tutti_group *group = default_group_peek(NULL);
    if (group == NULL) return -1;
    if (group->local_rank >= 0) return group->local_rank;
    return group->size == 1 ? 0 : count_local(group, group->rank);
}

int tutti_get_local_world_size(void)
{
    const struct tutti_group *group = default_group_peek(NULL);
    if (group == NULL) return -1;
    if (group->local_world_size > 0) return group->local_world_size;
    return group->size == 1 ? 1 : count_local(group, group->size);
}

int tutti_get_node_rank(void)
{
    const struct tutti_group *group = default_group_peek(NULL);
    if (group == NULL) return -1;
    if (group->node_rank >= 0) return group->node_rank;
    return group->local_world_size == group->size || group->size == 1 ? 0 : tutti_get_host(group, group->rank);
}
