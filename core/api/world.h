/* The default group, for the functions that make another one in its place. */
#ifndef API_WORLD_H
#define API_WORLD_H

#include <tutti/tutti.h>

/* Does tutti_regroup on the default group. */
int world_regroup(const tutti_regroup_opts *opts, tutti_group **next);

#endif
