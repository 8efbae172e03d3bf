/* The plug-ins: found by name, loaded once, checked, kept until the process ends. */
#ifndef REGISTRY_H
#define REGISTRY_H

#include <tutti/backend.h>

/* The backend of this name ([a-z0-9_]{1,32}) or of this absolute path.  BACKEND with a sentence that says at which
 * step it was refused and where it was looked for; INVALID_ARGUMENT for an impossible name.  host: for a plug-in that
 * chooses. */
int registry_load(const char *name, const tutti_host *host, const tutti_backend **backend);

/* The names of the plug-ins that lie in the folders searched, with blanks between; what does not fit is left out. */
void registry_list(char *text, size_t capacity);

/* The name of the i-th path of a kind that some loaded plug-in has, each name once; NULL behind the last. */
const char *registry_path(tutti_kind kind, int i);

#endif
