/* Process liveness: detects that ranks have died while a group is being opened.
 *
 * A backend detects a peer's death through its connection.  Before there is one, nothing does.  So each rank publishes
 * its process id, the start time of the process, and the scope in which the id is valid.  A rank that waits for others
 * checks the processes of its own scope.  The start time distinguishes a process from a later one with the same id.
 * The scope is not the host name: a container on the same host has process ids of its own, and may have the same
 * name. */
#ifndef LIVENESS_H
#define LIVENESS_H

#include <stdbool.h>
#include <tutti/store.h>

enum {
    LIVENESS_CHECK_MS = 200, /* interval between two checks during a wait */
    LIVENESS_NAME_MAX = 96
};

/* The processes of a group, as read from the store: one line per rank with its name.  All zero before the first
 * read. */
struct liveness_list {
    char *text;
    int n; /* number of lines */
    unsigned n_checks;
    int64_t again_ns;
    char own[LIVENESS_NAME_MAX]; /* the name of this process, which may have several of the ranks */
    const int *members;          /* by rank: negative for ranks to ignore; NULL: check all */
    int n_members;
};

/* Writes the name of this process: its id, its start time and its scope. */
void liveness_name(char name[LIVENESS_NAME_MAX]);

/* Returns the id of the named process if it belongs to this scope and has ended, else 0. */
int liveness_ended(const char *name);

/* True if the named process belongs to this scope and has not ended. */
bool liveness_is_running(const char *name);

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
