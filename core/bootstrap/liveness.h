/* Process liveness: which ranks of a group that is being opened have died.
 *
 * A backend notices a peer's death through its link.  Before there is a link, nothing would.  So each rank publishes
 * its process id and the scope in which that id is valid, and a rank that waits for others checks the processes of its
 * own scope.  The start tells it from a later process with the same id.  Scope is not the host name: a container on the
 * same host has process ids of its own, and may share the name.
 */
#ifndef LIVENESS_H
#define LIVENESS_H

#include <stdbool.h>
#include <tutti/store.h>

enum {
    LIVENESS_CHECK_MS = 200, /* interval between two checks during a wait */
    LIVENESS_NAME_MAX = 96
};

/* The processes of a group, as read from the store: one line per rank with its name.  Zeroed: not read yet. */
struct liveness_list {
    char *text;
    int n; /* lines */
    unsigned n_checks;
    int64_t again_ns;
    const int *members; /* by rank: negative for ranks to ignore; NULL: check all */
    int n_members;
};

/* Names this process: its id, its start and its scope. */
void liveness_name(char name[LIVENESS_NAME_MAX]);

/* Returns the id of the named process if it belongs to this scope and has ended, else 0. */
int liveness_ended(const char *name);

/* Appends this process to the list under key. */
int liveness_append(tutti_store *store, const char *key, int rank);

/* Returns PEER_LOST, naming the rank, if a process in the list under key belongs to this scope and has ended.  The
 * number of requests to the store does not grow with n. */
int liveness_check_list(struct liveness_list *list, tutti_store *store, const char *key, int n);
void liveness_list_free(struct liveness_list *list);

/* Returns the error that is stored under key, if any: a rank has failed while the group was being made, or its launcher
 * has seen its process end.  The launcher's report counts only if the ranks have the numbers that it gave them. */
int liveness_read_lost(tutti_store *store, const char *key);

/* Stores an error under key, for liveness_read_lost on other ranks.  The first report wins. */
void liveness_report_lost(tutti_store *store, const char *key, int status, const char *message);

/* Sets whether reports of the launcher count. */
void liveness_trust_launcher(bool trusts);

#endif
