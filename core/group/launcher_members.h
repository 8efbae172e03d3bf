/* The members of a job, as its launchers list them in the store.
 *
 * Launchers that start replacements for ranks that die append lines to the key "members/log": "start M" and "end M",
 * where M is the number of a process, which is never used again.  The first processes have their rank as number. */
#ifndef LAUNCHER_MEMBERS_H
#define LAUNCHER_MEMBERS_H

#include <stdbool.h>
#include <tutti/store.h>

/* All zero before the first read. */
struct launcher_members {
    bool present; /* there is a log */
    int n, capacity;
    struct launcher_member {
        int64_t number;
        bool ended;
    } * member;
};

/* Reads the log.  Without one, or without a store (NULL), there are no members. */
int launcher_members_read(struct launcher_members *members, tutti_store *store);
void launcher_members_free(struct launcher_members *members);

/* True if the launcher has seen the process end. */
bool launcher_members_ended(const struct launcher_members *members, int64_t number);

#endif
