/* One round of regrouping: a meeting, and the attempt of its members to open the group. */
#ifndef REGROUP_ROUND_H
#define REGROUP_ROUND_H

#include <stdbool.h>

#include "group/generation.h"
#include "group/group_args.h"

enum { REGROUP_KEY = 64 };

struct regroup {
    tutti_store *store;            /* where the ranks meet */
    tutti_store *launcher;         /* has the launcher's list of members, or NULL */
    struct tutti_group *group;     /* the old group; NULL on a newcomer */
    const char *name;              /* of the group, for messages */
    struct generation *old;        /* the generation of the old group; a round may replace that of a newcomer */
    const struct group_args *args; /* of the new group, but for its store, id, rank, size and generation */
    int64_t number;                /* of this process */
    int world_size;                /* newcomers are awaited until there are so many; 0: the launcher's */
    int64_t timeout_ms;
    bool progressed; /* out, of a round: a member has died, or the others have made a group */
};

/* Runs a round.  Sets *again if the next one must follow. */
int regroup_round_run(struct regroup *regroup, uint64_t round, struct tutti_group **next, bool *again);

/* Writes the key of a round's log. */
void regroup_round_key(uint64_t round, char key[REGROUP_KEY]);

/* Returns ABORTED, with the reason that the others have gone on without this rank. */
int regroup_report_left_behind(const struct regroup *regroup);

#endif
