/* The groups of a job, each as its ranks' files show it. */
#ifndef TRACE_GROUPS_H
#define TRACE_GROUPS_H

#include "trace/folder.h"

/* What one rank's file says about a group. */
struct view {
    const struct record_file *file;
    const struct record_group *group; /* NULL: no file has this rank of the group */
};

struct group {
    const char *name;
    uint64_t id;
    int n;              /* number of ranks */
    int *ranks;         /* global ranks */
    struct view *views; /* of each rank */
};

struct groups {
    size_t n;
    struct group *all;
};

/* Collects the groups of all files.  Returns false if out of memory. */
bool groups_collect(const struct folder *folder, struct groups *groups);
void groups_free(struct groups *groups);

/* True if the operation had not ended.  A file that was written without the group's lock has no `wait` lines. */
bool view_is_under_way(const struct view *view, const struct record_op *op);

/* Return operations of a view: the first collective under way (NULL: none), the one of a sequence number, the latest
 * one. */
const struct record_op *view_waiting(const struct view *view);
const struct record_op *view_find(const struct view *view, uint64_t seq);
const struct record_op *view_latest(const struct view *view);

/* Returns the first sequence number that the file still has, or UINT64_MAX. */
uint64_t view_oldest(const struct view *view);

/* Returns the operation that the process of a global rank has waited in for the longest time, or NULL.  *group: its
 * group. */
const struct record_op *groups_waiting(const struct groups *groups, int rank, const struct group **group);

#endif
