#include "child.h"

#include <stdio.h>

#include "doors.h"
#include "group.h"

uint64_t child_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

int child_open(struct tutti_group *parent, const int *ranks, int n, uint64_t id, int color,
               const tutti_group_opts *opts, tutti_group **group)
{
    int own = parent->global_ranks[parent->rank], rank = -1;
    char name[GROUP_NAME_MAX];
    for (int i = 0; i < n; i++)
        if (ranks[i] == own) rank = i;
    if (opts->name != NULL)
        snprintf(name, sizeof name, "%s", opts->name);
    else
        snprintf(name, sizeof name, "%.40s/%04x", parent->name, (unsigned)(id & 0xffff));
    bool all_call = !opts->members_only && opts->backend == NULL;
    int status = rank < 0 && all_call ? doors_abstain(parent) : TUTTI_OK;
    if (rank < 0 || status != TUTTI_OK) return status == TUTTI_OK ? group_open_outsider(parent, name, group) : status;
    struct names names = parent->names;
    if (opts->backend != NULL) {
        status = names_parse(opts->backend, &names);
        if (status != TUTTI_OK) return status;
    }
    struct group_args args = {
        .names = &names,
        .parent = parent,
        .whole = all_call ? parent : NULL,
        .color = color,
        .id = id,
        .name = name,
        .rank = rank,
        .size = n,
        .global_ranks = ranks,
        .local_rank = parent->local_rank,
        .local_world_size = parent->local_world_size,
        .node_rank = parent->node_rank,
        .timeout_ms = group_timeout(parent, opts->timeout_ms),
        .device = parent->device,
        .high_priority = opts->high_priority,
    };
    return group_open(&args, group);
}
