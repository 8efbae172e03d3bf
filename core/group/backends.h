/* The backends of a group: loads them, opens them on all ranks or on none, and closes them. */
#ifndef BACKENDS_H
#define BACKENDS_H

#include <tutti/backend.h>

struct group_args;
struct backend_entry;
struct backend_spec;
struct tutti_group;

/* Opens the backends in args->names with their fallbacks, and the plug-in that stages tensors, if needed. */
int backends_open(struct tutti_group *group, const struct group_args *args);

/* These serve a group that is made from another one, see creation.h.  backends_ready checks whether this rank will be
 * able to open the backends.  backends_open_alone is true if it needs no other rank for that.  backends_offer fills the
 * offers of this rank's backends for all members; lock held. */
int backends_ready(struct tutti_group *group, const struct group_args *args);
bool backends_open_alone(struct tutti_group *group, const struct group_args *args);
int backends_offer(struct tutti_group *group, const struct group_args *args, uint8_t (*offer)[TUTTI_OFFER_BYTES],
                   uint32_t *n);

/* Closes all backends, also after a failed backends_open. */
void backends_close(struct tutti_group *group);

/* Writes group->backend_text. */
void backends_describe(struct tutti_group *group);

/* Informs the backends that other ranks make groups from this one without this rank. */
int backends_abstain(struct tutti_group *group);

/* True if groups made with a store can be subgroups in a tree that none of them owns.  Then no backend needs another
 * rank to open a subgroup, so threads may make several in any order.  backends_may_share checks backends to be opened,
 * as far as this rank knows.  backends_can_share checks open ones; its result is the same on all ranks. */
bool backends_may_share(const struct backend_spec *names, const tutti_host *host);
bool backends_can_share(const struct tutti_group *root);

#endif
