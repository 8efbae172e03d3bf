/* Relates the clocks of hosts, by stamps that they exchange through the store. */
#ifndef TRACE_ALIGN_H
#define TRACE_ALIGN_H

#include <tutti/tool.h>
#include <tutti/trace.h>

/* Finds the offset of this host's clock from that of rank 0's host.  All ranks of the group call it, in group_made.
 * Takes at most about 2 s for each host that does not answer; error_ns is -1 then. */
void trace_align(const tutti_tool_group *group, tutti_trace_align *found);

#endif
