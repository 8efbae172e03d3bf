/* Declared, not yet behind the API: each answers by name. */
#include <tutti/tutti.h>

#include "base/error.h"

static int not_here(const char *name)
{
    return error_set(TUTTI_ERR_UNSUPPORTED, "%s is not supported by this version of Tutti", name);
}

int tutti_shrink_group(tutti_group *group, tutti_group **smaller)
{
    (void)group;
    (void)smaller;
    return not_here("tutti_shrink_group");
}
