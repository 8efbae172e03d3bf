#include "conformance/explained.h"

#include <stdio.h>
#include <string.h>

bool explained(tutti_group *group, tutti_kind kind, int64_t bytes, const char *part)
{
    char text[4096] = "";
    int status = tutti_explain(kind, bytes, tutti_with(.group = group), text, sizeof text);
    if (status == TUTTI_OK && strstr(text, part) != NULL) return true;
    fprintf(stderr, "\"%s\" is not in: %s\n", part, text);
    return false;
}
