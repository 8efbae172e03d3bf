/* Cache of plans and of the execs that run them, by everything that a plan depends on. */
#ifndef PLAN_CACHE_H
#define PLAN_CACHE_H

#include <tutti/backend.h>

#include "plan/exec.h"

struct plan_cache;
struct plan_cache_entry;
struct coll_algorithm;
struct coll_reason;
struct backend_entry;
struct tutti_group;

/* Maximum bytes of a group's plans and their runs, without scratch.  The least recently used plans are evicted
 * first. */
enum { CACHE_BYTES_MOST = 16 << 20 };

struct plan_cache *plan_cache_new(void);
void plan_cache_free(struct plan_cache *cache);

/* Finds or builds the plan for op in group over the entry's messages.  Returns an exec that is not started.  Returns
 * INVALID_ARGUMENT (TUTTI_ALGO), UNSUPPORTED or NO_MEMORY on failure. */
int plan_cache_take(struct plan_cache *cache, const struct tutti_group *group,
                    const struct backend_entry *backend_entry, const tutti_op *op, struct plan_cache_entry **entry,
                    struct exec **exec);

/* Builds the plan that plan_cache_take would build, and sets *reason to why.  The caller owns the plan. */
int plan_cache_explain(const struct tutti_group *group, const struct backend_entry *backend_entry, const tutti_op *op,
                       const struct coll_algorithm **algorithm, struct coll_reason *reason, struct plan **plan);

/* Returns the entry's link, by which algorithms are selected: rank 0's figures, else the backend's constants. */
struct coll_link plan_cache_link(const struct backend_entry *entry);

/* Returns an exec to the cache.  One that has failed is freed. */
void plan_cache_give(struct plan_cache *cache, struct plan_cache_entry *entry, struct exec *exec);

/* Returns the bytes of the cached plans.  They exceed CACHE_BYTES_MOST only while the plans that run need more, or if a
 * single plan does. */
size_t plan_cache_bytes(const struct plan_cache *cache);

#endif
