#include "portable/environment.h"

#include <stdlib.h>

char *environment_get(const char *name)
{
    return secure_getenv(name);
}
