#include "group/subgroup.h"

#include "base/text.h"
#include "group/backends.h"
#include "group/creation.h"
#include "group/group.h"
#include "group/group_args.h"

int subgroup_open(struct tutti_group *parent, const int *ranks, int n, const struct subgroup_id *id, int color,
                  const tutti_group_opts *opts, tutti_group **group)
{
    int own = parent->global_ranks[parent->rank], rank = -1;
    char name[GROUP_NAME_MAX];
    struct text text = text_in(name, sizeof name);
    for (int i = 0; i < n; i++)
        if (ranks[i] == own) rank = i;
    if (opts->name != NULL) {
        text_add(&text, opts->name);
    } else {
        text_add_some(&text, parent->name, 40);
        text_add(&text, "/");
        text_add_hex(&text, id->id, 4);
    }
    bool all_call = !opts->members_only && opts->backend == NULL;
    struct backend_spec given;
    const struct backend_spec *names = opts->backend != NULL ? &given : &parent->names;
    int status = opts->backend != NULL ? backend_spec_parse(opts->backend, &given) : TUTTI_OK;
    if (status != TUTTI_OK) return status;
    if (rank < 0) {
        if (id->number > 0)
            creation_abstain(parent,
                             &(struct creation_terms){
                                 ranks, n, names, opts->algorithm != NULL ? opts->algorithm : parent->own_algorithm},
                             id->key, id->number);
        status = all_call ? backends_abstain(parent) : TUTTI_OK;
        return status == TUTTI_OK ? group_open_non_member(parent, name, group) : status;
    }
    struct group_args args = {
        .names = names,
        .parent = parent,
        .whole = all_call ? parent : NULL,
        .color = color,
        .id = id->id,
        .key = id->key,
        .number = id->number,
        .survivors = id->survivors,
        .may_pend = id->may_pend,
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
        .algorithm = opts->algorithm != NULL ? opts->algorithm : parent->own_algorithm,
    };
    return group_open(&args, group);
}
