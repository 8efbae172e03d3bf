/* State that the ranks of a launch and their parent share: memory inherited by fork.  A rank that a launcher started
 * has a scoreboard of its own, on which meeting.c keeps the others' results.  Nothing here goes through the backend
 * under test.
 */
#ifndef CONFORMANCE_SCOREBOARD_H
#define CONFORMANCE_SCOREBOARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "conformance/suite.h"

struct seat {              /* of a rank */
    atomic_int at;         /* the case that it runs; n_cases when it has finished */
    atomic_llong since_ns; /* when it began that case */
    atomic_llong step;     /* within the case: see meeting.h */
    atomic_int pid;
};

struct result {                   /* of a case on a rank */
    _Atomic enum verdict verdict; /* other ranks look at it */
    float seconds;
    uint64_t bits;
    char text[TEXT_MOST];
};

struct scoreboard {
    pthread_barrier_t meeting;
    int n_cases, ranks, first; /* the launch begins with case `first` */
    atomic_bool ended;
    char end[TEXT_MOST]; /* why the launch ended early: the first reason given */
    struct seat seats[RANKS_MOST];
    struct result results[]; /* [case * RANKS_MOST + rank] */
};

struct scoreboard *scoreboard_new(int n_cases, int ranks);
void scoreboard_free(struct scoreboard *scoreboard);
void scoreboard_begin(struct scoreboard *scoreboard, int first); /* before each launch */

void scoreboard_end(struct scoreboard *scoreboard, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline struct result *scoreboard_result(struct scoreboard *scoreboard, int at, int rank)
{
    return &scoreboard->results[(size_t)at * RANKS_MOST + (size_t)rank];
}

int64_t scoreboard_now_ns(void);

/* Combines the ranks' verdicts on a case. text receives the reason given by the rank that knows it best. */
enum verdict scoreboard_fold(struct scoreboard *scoreboard, int at, const struct check *check, char *text, size_t room);

#endif
