/* Members: the processes of a job that goes on when ranks fail (--on-failure=continue).
 *
 * Each has a number that is never used again: the first ones their rank, their replacements those above.  The launchers
 * of all nodes append "start M" and "end M" to the key members/log of the ranks' store.  Requests to the store run in
 * a worker thread, one at a time, because the store may be on another host. */
#ifndef RUN_MEMBERS_H
#define RUN_MEMBERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include <tutti/store.h>

struct job;
struct rank;

/* What is to be written, and the answer about a replacement. */
struct members_request {
    int place;       /* index of the rank, or -1 */
    int first, last; /* members that start */
    int ended;       /* member that has ended, or -1 */
    bool lost;       /* all members of node `node` have ended */
    int node;
    int wanted;      /* replacements for them on another node; the first one's number is `replacement` */
    bool replace;    /* asks for a replacement */
    int replacement; /* its number, or -1 if all are used */
    int used;        /* replacements so far, with this one */
};

/* A place of a rank whose process has failed. */
struct members_place {
    bool due; /* a replacement starts at due_ms */
    int64_t due_ms;
    int replacement; /* its number */
};

struct members {
    uv_work_t work;
    uv_timer_t starter; /* starts the replacements that are due */
    bool working;
    struct members_request *next, *now; /* those to come, and the worker's */
    int n_next, n_now;
    struct members_place *places;
    int failure;        /* exit status of the first failure since a member succeeded */
    atomic_bool cancel; /* the worker gives up */

    /* The worker's. */
    tutti_store *store;
    int status;
    char error[512];
};

void members_init(struct job *job);
void members_close(struct job *job);

/* True if the others go on when a rank of this node fails. */
bool members_go_on(const struct job *job);

/* Writes that this node's first members start. */
void members_announce(struct job *job);

/* Counts an end of a member with this exit status, in the order of the ends, for that of the job. */
void members_count_end(struct job *job, int status);

/* Handles the end of a member: asks for a replacement if it failed. */
void members_take_end(struct job *job, struct rank *rank);

/* Writes that the members of a lost node have ended, and that `wanted` others start instead.  The leader gets the
 * number of the first one.  Node 0's only. */
void members_lose_node(struct job *job, int node, int wanted);

/* Drops the replacements that have not started. */
void members_cancel(struct job *job);

#endif
