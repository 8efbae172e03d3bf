/* Plans that were built before, by what they depend on, with the execs that run them. */
#ifndef CACHE_H
#define CACHE_H

#include <tutti/backend.h>

#include "exec.h"

struct cache;
struct cache_entry;
struct tutti_group;

struct cache *cache_new(void);
void cache_free(struct cache *cache);

/* An exec, not started, for op in group over backend's point-to-point door.  INVALID_ARGUMENT (TUTTI_ALGO),
 * UNSUPPORTED, NO_MEMORY. */
int cache_take(struct cache *cache, const struct tutti_group *group, const tutti_backend *backend, const tutti_op *op,
               struct cache_entry **entry, struct exec **exec);

/* Gives it back; one that ended badly is freed. */
void cache_give(struct cache *cache, struct cache_entry *entry, struct exec *exec);

#endif
