/* Registry of plug-ins.  They are found by name, loaded once, checked, and kept until the process ends. */
#ifndef REGISTRY_H
#define REGISTRY_H

#include <tutti/backend.h>

/* Loads the backend of this name ([a-z0-9_]{1,32}) or of this absolute path, or returns the one already loaded.  host
 * is passed to a plug-in that selects between others.  Returns BACKEND, with a message that has the failed step and the
 * paths tried, or INVALID_ARGUMENT for an invalid name. */
int registry_load(const char *name, const tutti_host *host, const tutti_backend **backend);

/* Lists the names of the plug-ins in the search folders, separated by blanks.  Truncates at a whole name. */
void registry_list(char *text, size_t capacity);

/* Returns the name of the i-th path of a kind among all loaded plug-ins, each name once; NULL if there are fewer. */
const char *registry_path(tutti_kind kind, int i);

#endif
