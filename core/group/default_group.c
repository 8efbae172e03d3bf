#include "group/default_group.h"

#include <stdatomic.h>

#include "base/error.h"

static _Atomic(struct tutti_group *) default_group;

struct tutti_group *default_group_set(struct tutti_group *group)
{
    /* release pairs with default_group_peek's acquire; acquire: for the caller that destroys the old group */
    return atomic_exchange_explicit(&default_group, group, memory_order_acq_rel);
}

const struct tutti_group *default_group_peek(const struct tutti_group *group)
{
    /* acquire pairs with default_group_set: a thread that sees the group sees its state */
    return group != NULL ? group : atomic_load_explicit(&default_group, memory_order_acquire);
}

struct tutti_group *default_group_or(const struct tutti_group *group)
{
    const struct tutti_group *found = default_group_peek(group);
    if (found == NULL)
        error_set(TUTTI_ERR_INVALID_ARGUMENT, "there is no default group; call tutti_init_process_group first");
    return (struct tutti_group *)(uintptr_t)found;
}
