/* Plans that were built before, by what they depend on, with the execs that run them. */
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

/* Bytes that a group's plans and their runs may take, scratch apart.  The least recently used plans go first. */
enum { CACHE_BYTES_MOST = 16 << 20 };

struct plan_cache *plan_cache_new(void);
void plan_cache_free(struct plan_cache *cache);

/* An exec, not started, for op in group over the backend_entry's messages.  INVALID_ARGUMENT (TUTTI_ALGO),
 * UNSUPPORTED, NO_MEMORY. */
int plan_cache_take(struct plan_cache *cache, const struct tutti_group *group,
                    const struct backend_entry *backend_entry, const tutti_op *op, struct plan_cache_entry **entry,
                    struct exec **exec);

/* What plan_cache_take would build, and why; the plan is the caller's. */
int plan_cache_explain(const struct tutti_group *group, const struct backend_entry *backend_entry, const tutti_op *op,
                       const struct coll_algorithm **algorithm, struct coll_reason *reason, struct plan **plan);

/* Gives it back; one that ended badly is freed. */
void plan_cache_give(struct plan_cache *cache, struct plan_cache_entry *entry, struct exec *exec);

/* Bytes of the plans that are kept: at most CACHE_BYTES_MOST, unless more of them run, or one alone takes more. */
size_t plan_cache_bytes(const struct plan_cache *cache);

#endif
