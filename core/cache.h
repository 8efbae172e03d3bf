/* Plans that were built before, by what they depend on, with the execs that run them. */
#ifndef CACHE_H
#define CACHE_H

#include <tutti/backend.h>

#include "exec.h"

struct cache;
struct cache_entry;
struct coll_algorithm;
struct coll_reason;
struct group_door;
struct tutti_group;

/* Bytes that a group's plans and their runs may take, scratch apart.  The least recently used plans go first. */
enum { CACHE_BYTES_MOST = 16 << 20 };

struct cache *cache_new(void);
void cache_free(struct cache *cache);

/* An exec, not started, for op in group over the door's messages.  INVALID_ARGUMENT (TUTTI_ALGO),
 * UNSUPPORTED, NO_MEMORY. */
int cache_take(struct cache *cache, const struct tutti_group *group, const struct group_door *door, const tutti_op *op,
               struct cache_entry **entry, struct exec **exec);

/* What cache_take would build, and why; the plan is the caller's. */
int cache_explain(const struct tutti_group *group, const struct group_door *door, const tutti_op *op,
                  const struct coll_algorithm **algorithm, struct coll_reason *reason, struct plan **plan);

/* Gives it back; one that ended badly is freed. */
void cache_give(struct cache *cache, struct cache_entry *entry, struct exec *exec);

/* Bytes of the plans that are kept: at most CACHE_BYTES_MOST, unless more of them run, or one alone takes more. */
size_t cache_bytes(const struct cache *cache);

#endif
