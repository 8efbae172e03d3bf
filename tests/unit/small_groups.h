/* Small operations of collective segments, driven one step at a time by one thread. */
#ifndef SMALL_GROUPS_H
#define SMALL_GROUPS_H

#include "unit/shm_ends.h"

enum { SMALL_MOST = 2048 };

/* A rank's side of a group, with one operation at a time. `ended` is 0 while the operation is pending, then 1 or its
 * error. */
struct small {
    struct coll_segment coll;
    struct coll_list running;
    int64_t x[SMALL_MOST], numel;
    tutti_request request;
    bool async;
    int ended;
};

/* Opens the group of the first n ranks on one of them. */
void small_open(struct end *end, struct small *small, int n);

/* Opens two ranks whose operations on x run in lockstep, and runs a short one. */
void small_open_both(struct end end[2], struct small small[2]);
void small_close_both(struct end end[2], struct small small[2]);

/* Begins an operation on x. */
void small_begin(struct small *small, tutti_kind kind);

/* Broadcasts value, value + 1, .. from this rank. */
void small_broadcast(struct small *small, int64_t value);

/* Receives that broadcast.  Asserts that its data are there already. */
void small_receive(struct small *small, int64_t value);

#endif
