#include "group/tool_view.h"

#include "coll/coll.h"
#include "progress/engine.h"
#include "state/group_state.h"
#include "tool/tool.h"
#include "tool/tools.h"
#include "trace/trace.h"

/* Returns the number of the group's tree, as tools see it. */
static uint64_t tree_of(struct tutti_group *root)
{
    static _Atomic uint64_t trees;
    engine_lock(root->engine);
    if (root->tool_tree == 0) root->tool_tree = atomic_fetch_add(&trees, 1) + 1;
    uint64_t tree = root->tool_tree;
    engine_unlock(root->engine);
    return tree;
}

void tool_view_open(struct tutti_group *group)
{
    trace_load();
    tools_load();
    if (tools_count() == 0 || group->is_shared) return;
    const struct coll_hosts *hosts = NULL;
    for (int device = 0; device < 2; device++)
        for (int i = 0; i < group->n_entries[device] && hosts == NULL; i++) hosts = group->entries[device][i].hosts;
    tutti_tool_group shown = {.rank = group->rank,
                              .world_size = group->size,
                              .local_rank = group->root->local_rank,
                              .global_ranks = group->global_ranks,
                              .hosts = hosts != NULL ? hosts->of : NULL,
                              .tree = tree_of(group->root),
                              .id = group->id,
                              .name = group->name,
                              .backend = group->backend_text,
                              .store = group->store,
                              .timeout_ms = group->timeout_ms};
    struct tool_group *tool = tool_group_made(&shown);
    engine_lock(group->engine);
    group->tool = tool;
    engine_unlock(group->engine);
}

void tool_view_close(struct tutti_group *group)
{
    engine_lock(group->engine);
    struct tool_group *tool = group->tool;
    group->tool = NULL;
    engine_unlock(group->engine);
    tool_group_ended(tool);
}
