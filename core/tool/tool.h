/* Calls the registered tools (tutti/tool.h).  Without a tool a group has no struct tool_group, and an operation no
 * struct tool_op: each place in the path of an operation costs one predicted branch. */
#ifndef CORE_TOOL_H
#define CORE_TOOL_H

#include <stdbool.h>
#include <tutti/backend.h>
#include <tutti/tool.h>

struct tool_group;
struct tool_op;

/* Calls group_made of all tools.  *group: the fields but size and number; arrays and texts are copied.  Returns NULL if
 * there is no tool or no memory.  Called without a lock. */
struct tool_group *tool_group_made(const tutti_tool_group *group);

/* Calls group_ended and frees the group.  Ignores NULL.  Called without a lock, after the group's last operation. */
void tool_group_ended(struct tool_group *group);

void tool_op_issue(struct tool_group *group, tutti_op *op);
void tool_op_start(struct tool_op *op);

/* Fills in the source and the tag of a receive that has named none, from its request, which has received a message. */
void tool_op_found(struct tool_op *op, const tutti_request *request);
void tool_op_end(struct tool_op *op, int status, const char *why, bool by_thread);

/* Sets op->tool.  Does nothing if the operation has been issued already by another way.  Lock held, like below. */
static inline void tool_issued(struct tool_group *group, tutti_op *op)
{
    if (__builtin_expect(group != NULL, 0)) tool_op_issue(group, op);
}

static inline void tool_started(const tutti_op *op)
{
    if (__builtin_expect(op->tool != NULL, 0)) tool_op_start(op->tool);
}

/* Ends an operation, and clears op->tool.  why: the error message, if status is not TUTTI_OK. */
static inline void tool_ended(tutti_op *op, int status, const char *why, bool by_thread)
{
    if (__builtin_expect(op->tool == NULL, 1)) return;
    tool_op_end(op->tool, status, why, by_thread);
    op->tool = NULL;
}

#endif
