/* Process liveness: which ranks of a group that is being opened have died.
 *
 * A backend notices a peer's death through its link.  Before there is a link, nothing would.  So each rank publishes
 * its process id and the scope in which that id is valid, and a rank that waits for others checks the processes of its
 * own scope.  Scope is not the host name: a container on the same host has process ids of its own, and may share the
 * name.
 */
#ifndef ALIVE_H
#define ALIVE_H

#include <stdbool.h>
#include <tutti/store.h>

enum {
    ALIVE_LOOK_MS = 200, /* pause between two checks during a wait */
    ALIVE_NAME_MAX = 96
};

struct tutti_group;

/* The processes of a group, as read from the store: one line per rank with its name.  Zeroed: not read yet. */
struct alive_list {
    char *text;
    int n; /* lines */
    int64_t again_ns;
    const int *members; /* by rank: negative for ranks to ignore; NULL: check all */
    int n_members;
};

/* Names this process: its id and scope. */
void alive_name(char name[ALIVE_NAME_MAX]);

/* Returns the id of the named process if it belongs to this scope and has ended, else 0. */
int alive_ended(const char *name);

/* Publishes this process in the group's store, and sets group->turn, which tells this group's keys from those that
 * earlier groups have left there. */
int alive_publish(struct tutti_group *group);

/* Adds this process to the list under key. */
int alive_append(tutti_store *store, const char *key, int rank);

/* Returns PEER_LOST, naming the rank, if a process in the list under key belongs to this scope and has ended.  The
 * number of requests to the store does not grow with n. */
int alive_check_list(struct alive_list *list, tutti_store *store, const char *key, int n);
void alive_list_free(struct alive_list *list);

/* Returns the error that is stored under key, if any: a rank has failed while the group was being made, or its launcher
 * has seen it end.  The launcher's report counts only if the ranks have the numbers that it gave them. */
int alive_lost(tutti_store *store, const char *key);
void alive_say_lost(tutti_store *store, const char *key, int status, const char *sentence);
void alive_heed_launcher(bool heeds);

/* Returns PEER_LOST, naming the rank, if a member's process in this scope has ended. */
int alive_check(struct tutti_group *group);

#endif
