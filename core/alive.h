/* Which ranks of a group that is being opened are still there, and which ranks have left a file behind.
 *
 * A backend sees the end of a peer through its link to it; before there is one, nobody would.  So each rank says which
 * process of which machine it is, and whoever has to wait for the others looks whether those of its own machine live.
 * Its own are those whose process numbers it knows: a container on the same host counts its own, and may have its name.
 */
#ifndef ALIVE_H
#define ALIVE_H

#include <stdbool.h>
#include <tutti/store.h>

enum {
    ALIVE_LOOK_MS = 200, /* so often, where it takes so long */
    ALIVE_NAME_MAX = 96
};

struct tutti_group;

/* Which process each rank is, read from the store: lines of rank and name.  Zeroed: nothing is known yet. */
struct alive_list {
    char *text;
    int n; /* lines */
    int64_t again_ns;
    const int *members; /* by rank: negative for those who do not count; NULL: all do */
    int n_members;
};

/* Which process of which machine this is. */
void alive_name(char name[ALIVE_NAME_MAX]);

/* The number of the process of this name if it is of this machine and has ended, else 0: it lives, or one cannot know.
 */
int alive_ended(const char *name);

/* Says which process this is, in the group's store, and learns whose turn it is there: what earlier groups have left
 * is not this one's. */
int alive_publish(struct tutti_group *group);

/* Adds this process to a list under key. */
int alive_append(tutti_store *store, const char *key, int rank);

/* PEER_LOST, naming it, if one of the n processes in the list under key is of this machine and has ended.  The list is
 * read in a number of requests that does not grow with n. */
int alive_check_list(struct alive_list *list, tutti_store *store, const char *key, int n);
void alive_list_free(struct alive_list *list);

/* The error that stands under key, if any: a rank failed while the group was being made, or its launcher has seen it
 * end.  What the launcher says counts only for ranks that have the numbers it gave them. */
int alive_lost(tutti_store *store, const char *key);
void alive_say_lost(tutti_store *store, const char *key, int status, const char *sentence);
void alive_heed_launcher(bool heeds);

/* PEER_LOST, naming it, if a rank of this machine has ended without a goodbye. */
int alive_check(struct tutti_group *group);

#endif
