/* The backends of a group: they are loaded, opened by all ranks or by none, and closed. */
#ifndef DOORS_H
#define DOORS_H

#include <tutti/backend.h>

struct group_args;
struct group_door;
struct tutti_group;

/* Opens what args->names say, with their fallbacks, and what stages tensors between them. */
int doors_open(struct tutti_group *group, const struct group_args *args);

/* For a group that is made from another one, see making.h: whether this rank will be able to open its backends; whether
 * it needs none of the others for it; what they offer, of one rank for all, under the lock. */
int doors_ready(struct tutti_group *group, const struct group_args *args);
bool doors_open_alone(struct tutti_group *group, const struct group_args *args);
int doors_offer(struct tutti_group *group, const struct group_args *args, uint8_t (*offer)[TUTTI_OFFER_BYTES],
                uint32_t *n);

/* Closes them all; also after a failed doors_open. */
void doors_close(struct tutti_group *group);

/* The door of a group that has this backend; NULL. */
const struct group_door *doors_find(const struct tutti_group *group, const tutti_backend *backend);

/* group->backend_text. */
void doors_describe(struct tutti_group *group);

/* So that what the backends have under way lets go of its memory.  Under the lock. */
void doors_abort(struct tutti_group *group);

/* All of the group's ranks make groups of it, and this one is in none. */
int doors_abstain(struct tutti_group *group);

#endif
