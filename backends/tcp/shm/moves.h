/* A measured choice between the ways in which data move to or from a peer (choice.h).
 *
 * Moves of all sizes count as one class, and their times are scaled to MOVE_UNIT bytes.  A span is a number of moves,
 * of which the last ones are timed: the first find caches as the other way has left them.
 */
#ifndef SHM_MOVES_H
#define SHM_MOVES_H

#include "tcp/shm/choice.h"

enum { MOVE_UNIT = 64 << 10 }; /* bytes */

struct shm_moves {
    struct choice measured;
    uint64_t count, end; /* moves so far; the first one after the current span */
    bool is_timed;       /* the last move is */
};

/* Counts a move, and sets is_timed.  Returns its way, 0 or 1.  `span`: moves of a short span.  `timed`: of them. */
static inline int moves_next(struct shm_moves *moves, int span, uint64_t timed)
{
    bool ends = moves->count == moves->end;
    if (ends && moves->measured.times > 0)
        moves->end += (uint64_t)choice_end_span(&moves->measured, 1u << 0 | 1u << 1, span);
    else if (ends)
        moves->end += moves->count == 0 ? (uint64_t)span : timed; /* until there is a time */
    moves->is_timed = moves->end - moves->count++ <= timed;
    return moves->measured.way;
}

/* Adds the time of `bytes`, `weight` times. */
static inline void moves_add(struct shm_moves *moves, int64_t ns, double weight, size_t bytes)
{
    choice_add(&moves->measured, (int64_t)((double)ns * weight * MOVE_UNIT / (double)bytes));
}

#endif
