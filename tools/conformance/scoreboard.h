/* Scoreboard: the verdicts and the state that the ranks of a launch share with their parent, in memory inherited by
 * fork. A rank that a launcher started has a scoreboard of its own, to which meeting.c copies the others' results.
 * Nothing here goes through the backend under test.
 */
#ifndef CONFORMANCE_SCOREBOARD_H
#define CONFORMANCE_SCOREBOARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "conformance/suite.h"

/* State of one rank. */
struct rank_state {
    atomic_int at;         /* index of the case that it runs; n_cases when it has finished */
    atomic_llong since_ns; /* start time of that case */
    atomic_llong step;     /* number of the step within the case: see meeting.h */
    atomic_int pid;
};

/* Result of one case on one rank. */
struct result {
    _Atomic enum verdict verdict; /* other ranks read it */
    float seconds;
    uint64_t bits;
    char text[TEXT_MAX];
};

struct scoreboard {
    pthread_barrier_t meeting;
    int n_cases, ranks, first; /* the launch begins with case `first` */
    atomic_bool ended;
    char end[TEXT_MAX]; /* why the launch ended early: the first reason that was set */
    struct rank_state states[RANKS_MAX];
    struct result results[]; /* [case * RANKS_MAX + rank] */
};

struct scoreboard *scoreboard_new(int n_cases, int ranks);
void scoreboard_free(struct scoreboard *scoreboard);
/* Resets the ranks' state before each launch. */
void scoreboard_begin(struct scoreboard *scoreboard, int first);

/* Sets the reason for an early end, unless one is set. */
void scoreboard_end(struct scoreboard *scoreboard, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline struct result *scoreboard_result(struct scoreboard *scoreboard, int at, int rank)
{
    return &scoreboard->results[(size_t)at * RANKS_MAX + (size_t)rank];
}

int64_t scoreboard_now_ns(void);

/* Combines the ranks' verdicts on a case.  `text` receives one reason, if possible that of the rank where the failure
 * began. */
enum verdict scoreboard_fold(struct scoreboard *scoreboard, int at, const struct check *check, char *text,
                             size_t capacity);

#endif
