/* Ranks of one host that run operations on lists, for tests that drive them in one thread. */
#ifndef LIST_SIDES_H
#define LIST_SIDES_H

#include "unit/shm_ends.h"

enum { LARGE = COLL_READ_MOST / 8 * 2, SMALL = 5 }; /* two turns are needed to read LARGE elements */

struct side {
    struct coll_segment coll;
    struct coll_list running;
    int64_t own[LARGE + 1], all[ENDS][LARGE + 1], got[ENDS][LARGE + 1];
    tutti_tensor one, list[ENDS], received[ENDS];
    tutti_request request;
    int ended;
};

extern struct side side[ENDS];
extern struct end side_end[ENDS];
extern uint64_t side_fingerprint; /* of the next operation that begins */
extern const int64_t side_large[ENDS], side_small[ENDS];

/* Opens the ranks, which can read each other's memory, and fills what they give: own[k] of rank i is 1000 i + k, and
 * element k of its block for rank j 100000 j more. */
void sides_open(void);
/* The same where they share cores and do not poll. */
void sides_open_sharing_cores(void);
void sides_close(void);

/* Begins an operation with this many elements in the blocks that the rank knows. */
void side_begin(int rank, tutti_kind kind, int root, const int64_t numel[ENDS]);
/* Lets a rank advance by a few steps. */
void side_turn(int rank);

#endif
