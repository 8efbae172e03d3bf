/* Shows groups to the registered tools. */
#ifndef GROUP_TOOL_VIEW_H
#define GROUP_TOOL_VIEW_H

struct tutti_group;

/* Registers the tools of the environment, and shows them an open group before its first operation.  Lock not held. */
void tool_view_open(struct tutti_group *group);

/* Reports the end of the group, after its last operation.  Lock not held. */
void tool_view_close(struct tutti_group *group);

#endif
