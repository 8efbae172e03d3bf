/* The public functions for tools: registration, and the ranges that programs name. */
#include "tool/tools.h"

#include <tutti/tutti.h>

#include "base/error.h"

int tutti_register_tool(const tutti_tool *tool)
{
    return tools_register(tool);
}

void tutti_range_push(const char *name)
{
    for (int i = 0, n = tools_count(); i < n; i++)
        if (TOOL_CALLS(tools_get(i), range_pushed))
            tools_get(i)->range_pushed(tools_get(i)->argument, name != NULL ? name : "");
}

void tutti_range_pop(void)
{
    for (int i = 0, n = tools_count(); i < n; i++)
        if (TOOL_CALLS(tools_get(i), range_popped)) tools_get(i)->range_popped(tools_get(i)->argument);
}
