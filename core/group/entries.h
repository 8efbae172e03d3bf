/* The backend entries of a group that is open. */
#ifndef ENTRIES_H
#define ENTRIES_H

#include "state/group_state.h"

/* Returns the group's entry of this backend, or NULL. */
const struct backend_entry *entries_find(const struct tutti_group *group, const tutti_backend *backend);

/* Returns the entry that carries control messages, the group's first one of CPU tensors whose backend has `tell`, or
 * NULL. */
const struct backend_entry *entries_find_control(const struct tutti_group *group);

/* Makes the backends release the memory of pending operations, once.  Lock held. */
void entries_abort(struct tutti_group *group);

#endif
