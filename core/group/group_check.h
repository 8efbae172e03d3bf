/* Checks whether a call may use a group. */
#ifndef GROUP_CHECK_H
#define GROUP_CHECK_H

struct tutti_group;

/* Returns group, or the default group if it is NULL, ready for use: a pending group is made first.  Returns NULL, with
 * the error text set, if there is no group, or in a forked child: there a thread of the parent may hold the group's
 * lock, and its memory is shared with the parent's peers. */
struct tutti_group *group_for_call(const struct tutti_group *group);

/* Returns TUTTI_OK if this process may use the group, failed or not.  Otherwise returns an error with the reason. */
int group_check_open(const struct tutti_group *group);

/* Returns TUTTI_OK if the group takes operations, otherwise an error with the reason.  doing names the call in the
 * error message, such as "all_reduce". */
int group_check_usable(struct tutti_group *group, const char *doing);

/* Does the same for a collective.  A failure that is the same on all ranks (calls differ, a member is lost) is returned
 * by the first collective after it, even if peers reported it before this rank called.  Later ones return ABORTED. */
int group_check_collective(struct tutti_group *group, const char *doing);

#endif
