/* The backends of a group: loads them, opens them on all ranks or on none, and closes them. */
#ifndef DOORS_H
#define DOORS_H

#include <tutti/backend.h>

struct group_args;
struct group_door;
struct tutti_group;

/* Opens the backends in args->names with their fallbacks, and the plug-in that stages tensors, if needed. */
int doors_open(struct tutti_group *group, const struct group_args *args);

/* For a group that is made from another one, see making.h.  doors_ready asks whether this rank will be able to open the
 * backends.  doors_open_alone is true if it needs no other rank for that.  doors_offer fills the offers of this rank's
 * backends for all members, lock held. */
int doors_ready(struct tutti_group *group, const struct group_args *args);
bool doors_open_alone(struct tutti_group *group, const struct group_args *args);
int doors_offer(struct tutti_group *group, const struct group_args *args, uint8_t (*offer)[TUTTI_OFFER_BYTES],
                uint32_t *n);

/* Closes all backends, also after a failed doors_open. */
void doors_close(struct tutti_group *group);

/* Returns the group's entry of this backend, or NULL. */
const struct group_door *doors_find(const struct tutti_group *group, const tutti_backend *backend);

/* Writes group->backend_text. */
void doors_describe(struct tutti_group *group);

/* Makes the backends release the memory of pending operations.  Lock held. */
void doors_abort(struct tutti_group *group);

/* Tells the backends that the group's ranks make groups from it, none of which this rank is in. */
int doors_abstain(struct tutti_group *group);

#endif
