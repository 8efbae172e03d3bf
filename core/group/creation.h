/* Agreement among the members of a group that is made from another one.
 *
 * The member of the lowest rank leads.  Every other member sends it a proposal: its ordered list of members, its
 * backends, and whether it is able to make the group.  The leader sends one verdict to all: the error, or the backends'
 * offers (such as the position of the group's collective segment).  These are control messages between the ranks of the
 * first group of the tree (`tell` in the ABI), so they arrive although the new group's backends are not open yet.
 *
 * Lists that name different leaders are detected too: a rank that receives a proposal for a group that it does not
 * lead, or is not in, answers with the difference.  A leader that waits asks the stragglers.  They answer with their
 * proposal, or with what they are doing.  A member never gives up on its own: at its timeout it asks the leader to
 * decide, so that there is one verdict.
 *
 * A split is agreed on in the same way, by all ranks of the parent: each proposal carries a color and a key, and the
 * verdict those of all ranks.
 *
 * With members_only the members may make several groups in different orders, so they must not wait for each other in
 * the call.  If the backends need no other rank to open a group (TUTTI_BACKEND_OPENS_ALONE), such a group is pending
 * until its first use, which waits for the verdict.
 */
#ifndef CREATION_H
#define CREATION_H

#include <stdbool.h>
#include <stdint.h>

struct backend_spec;
struct group_args;
struct tutti_group;

/* Terms that must be the same on all members. */
struct creation_terms {
    const int *ranks;
    int n;
    const struct backend_spec *names;
    const char *algorithm; /* NULL: the parent's applies */
};

/* Sends this rank's proposal, or begins to collect those of the others.  ready is TUTTI_OK, or the error for which this
 * rank cannot make the group, with the thread's error text.  Sets group->creation.  On an error it is not set, and the
 * other members have been informed. */
int creation_begin(struct tutti_group *group, const struct group_args *args, int ready);

/* Waits for the verdict and returns it.  Ends the creation unless the verdict is TUTTI_OK. */
int creation_wait(struct tutti_group *group);

/* Exchanges the colors and keys of a split among all ranks of the parent, args->color and args->split_key of each.
 * Waits for the verdict.  choice: two numbers for each rank, by rank. */
int creation_split(struct tutti_group *parent, const struct group_args *args, int32_t *choice);

/* Records the call of a rank that is not in the group with these terms. */
void creation_abstain(struct tutti_group *parent, const struct creation_terms *of, uint64_t key, uint64_t number);

/* Ends the creation of a group that is made, or never will be.  Lock held. */
void creation_end(struct tutti_group *group);

/* Gives up a pending group, or one that this rank cannot open after a verdict of OK, and informs the others.  Lock
 * held. */
void creation_give_up(struct tutti_group *group, int status, const char *text);

/* Ends creations that wait for a lost peer, or whose parent has failed.  Lock held. */
void creation_peer_lost(struct tutti_group *root, int peer, bool left, const char *text);
void creation_parent_failed(struct tutti_group *parent);

#endif
