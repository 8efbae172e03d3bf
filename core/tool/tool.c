#include "tool/tool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/reduce_clock.h"
#include "tool/tools.h"

/* An operation that has not ended. */
struct tool_op {
    tutti_tool_op shown;
    void *data[TUTTI_TOOLS_MOST];
    struct tool_group *group;
    struct tool_op *next_free;
    bool started;
    const uint64_t *reduce_clock; /* of the thread that has issued it */
    uint64_t reduce_begin;
};

struct tool_group {
    tutti_tool_group shown;
    int n; /* tools that were registered when it was made */
    void *context[TUTTI_TOOLS_MOST];
    struct tool_op *free_ops;
    int32_t ranks[]; /* its global ranks, then their hosts */
};

/* ---- groups ------------------------------------------------------------------------------------------------ */

static struct tool_group *copy_group(const tutti_tool_group *from)
{
    size_t n = (size_t)from->world_size, names = strlen(from->name) + strlen(from->backend) + 2;
    struct tool_group *group = calloc(1, sizeof *group + 2 * n * sizeof group->ranks[0] + names);
    if (group == NULL) return NULL;
    char *text = (char *)(group->ranks + 2 * n);
    group->shown = *from;
    group->shown.global_ranks = group->ranks;
    memcpy(group->ranks, from->global_ranks, n * sizeof group->ranks[0]);
    if (from->hosts != NULL) group->shown.hosts = memcpy(group->ranks + n, from->hosts, n * sizeof group->ranks[0]);
    group->shown.name = strcpy(text, from->name);
    group->shown.backend = strcpy(text + strlen(text) + 1, from->backend);
    return group;
}

struct tool_group *tool_group_made(const tutti_tool_group *from)
{
    static _Atomic uint64_t numbers;
    int n = tools_count();
    if (n == 0) return NULL;
    struct tool_group *group = copy_group(from);
    if (group == NULL) {
        log_write(LOG_WARN, LOG_PLUGIN, "tools do not see group %s: out of memory", from->name);
        return NULL;
    }
    group->n = n;
    group->shown.size = sizeof group->shown;
    group->shown.number = atomic_fetch_add(&numbers, 1) + 1;
    for (int i = 0; i < n; i++) {
        const tutti_tool *tool = tools_get(i);
        group->context[i] = tool->argument;
        if (TOOL_CALLS(tool, group_made)) group->context[i] = tool->group_made(tool->argument, &group->shown);
    }
    group->shown.store = NULL;
    return group;
}

void tool_group_ended(struct tool_group *group)
{
    if (group == NULL) return;
    for (int i = 0; i < group->n; i++)
        if (TOOL_CALLS(tools_get(i), group_ended)) tools_get(i)->group_ended(group->context[i], &group->shown);
    for (struct tool_op *op = group->free_ops, *next; op != NULL; op = next) {
        next = op->next_free;
        free(op);
    }
    free(group);
}

/* ---- operations -------------------------------------------------------------------------------------------- */

static int64_t bytes_of(const tutti_tensor *tensors, int n, tutti_dtype dtype)
{
    int64_t numel = 0;
    for (int i = 0; i < n; i++) numel += tensors[i].numel;
    return numel * tutti_dtype_bytes(dtype);
}

static struct tool_op *take_op(struct tool_group *group)
{
    struct tool_op *op = group->free_ops;
    if (op == NULL) return calloc(1, sizeof *op);
    group->free_ops = op->next_free;
    for (int i = 0; i < group->n; i++) op->data[i] = NULL;
    op->started = false;
    return op;
}

void tool_op_issue(struct tool_group *group, tutti_op *op)
{
    struct tool_op *made = op->tool == NULL && op->kind != TUTTI_COPY ? take_op(group) : NULL;
    if (made == NULL) return; /* without memory the tools miss the operation */
    op->tool = made;
    made->group = group;
    made->reduce_clock = &reduce_clock_ticks;
    made->reduce_begin = reduce_clock_ticks;
    bool same = op->in == op->out && op->n_in == op->n_out;
    int64_t in = bytes_of(op->in, op->n_in, op->dtype), out = same ? in : bytes_of(op->out, op->n_out, op->dtype);
    made->shown = (tutti_tool_op){.size = sizeof made->shown,
                                  .kind = op->kind,
                                  .reduce_op = op->reduce_op,
                                  .dtype = op->dtype,
                                  .root = op->root,
                                  .tag = op->tag,
                                  .sequence = op->sequence,
                                  .bytes = in > out ? in : out,
                                  .async = op->async,
                                  .group = &group->shown};
    for (int i = 0; i < group->n; i++)
        if (TOOL_CALLS(tools_get(i), op_issued))
            tools_get(i)->op_issued(group->context[i], &made->shown, &made->data[i]);
}

void tool_op_start(struct tool_op *op)
{
    if (op->started) return;
    op->started = true;
    for (int i = 0; i < op->group->n; i++)
        if (TOOL_CALLS(tools_get(i), op_started))
            tools_get(i)->op_started(op->group->context[i], &op->shown, &op->data[i]);
}

void tool_op_end(struct tool_op *op, int status, const char *why, bool by_thread)
{
    struct tool_group *group = op->group;
    op->shown.by_thread = by_thread;
    if (op->reduce_clock == &reduce_clock_ticks && reduce_clock_ticks != op->reduce_begin)
        op->shown.reduce_ns = ticks_to_ns(reduce_clock_ticks - op->reduce_begin);
    for (int i = 0; i < group->n; i++) {
        const tutti_tool *tool = tools_get(i);
        if (status == TUTTI_OK && TOOL_CALLS(tool, op_ended))
            tool->op_ended(group->context[i], &op->shown, &op->data[i]);
        if (status != TUTTI_OK && TOOL_CALLS(tool, op_failed))
            tool->op_failed(group->context[i], &op->shown, &op->data[i], status, why != NULL ? why : "");
    }
    op->next_free = group->free_ops;
    group->free_ops = op;
}
