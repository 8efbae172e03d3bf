/* A tool in one file: counts the operations of a process and prints them when its last group ends.
 *
 *     TUTTI_TOOL=$PWD/build/examples/count_tool/libcount_tool.so tutti-run -n 2 build/examples/all_reduce
 *
 * The callbacks of different group trees may run in several threads, so the counters are atomic. */
#include <stdatomic.h>
#include <stdio.h>
#include <tutti/tool.h>

static atomic_long issued[TUTTI_KIND_COUNT], failed, bytes, groups;

static void *group_made(void *argument, const tutti_tool_group *group)
{
    (void)group;
    atomic_fetch_add(&groups, 1);
    return argument;
}

static void print_counts(int rank)
{
    char line[1024];
    int used = snprintf(line, sizeof line, "count: rank %d:", rank);
    for (int kind = 0; kind < TUTTI_KIND_COUNT; kind++)
        if (issued[kind] > 0)
            used += snprintf(line + used, sizeof line - (size_t)used, " %s %ld",
                             tutti_kind_find((tutti_kind)kind)->name, issued[kind]);
    fprintf(stderr, "%s, %ld bytes, %ld failed\n", line, bytes, failed);
}

static void group_ended(void *context, const tutti_tool_group *group)
{
    (void)context;
    if (atomic_fetch_sub(&groups, 1) == 1) print_counts(group->global_ranks[group->rank]);
}

static void op_issued(void *context, const tutti_tool_op *op, void **data)
{
    (void)context;
    (void)data;
    if (op->kind < TUTTI_KIND_COUNT) atomic_fetch_add_explicit(&issued[op->kind], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&bytes, op->bytes, memory_order_relaxed);
}

static void op_failed(void *context, const tutti_tool_op *op, void **data, int status, const char *why)
{
    (void)context;
    (void)op;
    (void)data;
    (void)status;
    (void)why;
    atomic_fetch_add_explicit(&failed, 1, memory_order_relaxed);
}

TUTTI_TOOL_EXPORT extern const tutti_tool tutti_tool_v1;

const tutti_tool tutti_tool_v1 = {TUTTI_TOOL_HEADER,          .name = "count",        .group_made = group_made,
                                  .group_ended = group_ended, .op_issued = op_issued, .op_failed = op_failed};
