/* The table of registered tools, and how they get there. */
#ifndef CORE_TOOLS_H
#define CORE_TOOLS_H

#include <tutti/tool.h>

/* True if *tool is long enough to contain the callback, and it is set. */
#define TOOL_CALLS(tool, callback)                                                                                     \
    ((tool)->size >= offsetof(tutti_tool, callback) + sizeof((tool)->callback) && (tool)->callback != NULL)

/* See tutti_register_tool. */
int tools_register(const tutti_tool *tool);

/* Returns the number of registered tools, of which there may be more later. */
int tools_count(void);

const tutti_tool *tools_get(int i);

/* Registers the tools of the environment once: the libraries of TUTTI_TOOL and the table of a preloaded library.  One
 * that cannot be registered is skipped, with a warning. */
void tools_load(void);

#endif
