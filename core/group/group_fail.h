/* Fails groups. */
#ifndef GROUP_FAIL_H
#define GROUP_FAIL_H

#include <stdbool.h>
#include <stdint.h>

struct tutti_group;

/* Ends all of the group's operations with status and text.  The group takes no further operation.  With `propagate`,
 * the failure is sent to the other ranks.  Lock held. */
void group_fail(struct tutti_group *group, int status, const char *text, bool propagate);

/* Fails a group that was made with a store, and those made from it, on all ranks.  Lock held. */
void group_fail_descendants(struct tutti_group *origin, int status, const char *text);

/* Fails all groups of the tree, because the program has closed the engine's descriptors.  Lock held. */
void group_fail_disowned(struct tutti_group *first);

/* Fails all groups of the tree, because there was no memory for a control message.  Lock held. */
void group_fail_starved(struct tutti_group *first);

/* Records a peer's report that the group has failed.  sequence is the first collective that failed there.  Earlier ones
 * may still complete here, as they did there, so the failure is applied after a moment. */
void group_fail_report(struct tutti_group *group, int status, const char *text, uint64_t sequence);

/* Applies the reported failures of the tree's groups that are due. */
void group_fail_apply_reported(struct tutti_group *first);

#endif
