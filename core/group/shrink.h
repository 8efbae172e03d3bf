/* Makes a smaller group of the survivors of a group. */
#ifndef SHRINK_H
#define SHRINK_H

#include <stdint.h>

struct tutti_group;

/* Does tutti_shrink_group on a group that has this rank, and waits up to timeout_ms for others. */
int shrink_group(struct tutti_group *group, int64_t timeout_ms, struct tutti_group **smaller);

#endif
