/* Ranks that are processes of the test.
 *
 * The parent forks them first, while it has one thread.  Then it hosts the store and opens a gate at which they wait.
 * env:// works in each rank.
 *
 * A rank's function returns 0, or prints the reason and returns something else.  Only the parent asserts.  Ranks and
 * parent report and wait for steps through shared memory, without the library under test.  All waits are bounded: a
 * rank that hangs is shown with its stacks and killed. */
#ifndef TESTS_PROCS_H
#define TESTS_PROCS_H

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

#include "monotonic.h"

#define PROCS_MOST 96
#define PROCS_LIMIT_S 120
#define PROCS_TOKEN "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"
#define PROCS_HUNG (-1000)

/* Limit for what must happen at once rather than at a timeout of 20 s or more.  docs/faults.md promises 1 s; a busy
 * machine may hold a rank up for several. */
#define PROCS_SOON_S 15

typedef int (*proc_fn)(int rank, int size, void *argument);

/* Memory that ranks and parent share. */
struct procs_shared {
    atomic_int step[PROCS_MOST]; /* the step that each rank has reached */
    atomic_int go;               /* the step up to which the parent has released the ranks */
    atomic_bool broken;          /* a rank returned an error, so waiting ranks exit */
    _Atomic int64_t at_ns[PROCS_MOST], value[PROCS_MOST];
};

struct procs {
    int size;
    proc_fn fn;
    void *argument;
    void (*act)(struct procs *procs, void *argument); /* runs in the parent meanwhile; may be NULL */
    int limit_s;                                      /* 0: PROCS_LIMIT_S */
    bool may_fail;                                    /* the caller checks the codes instead of procs_run */
    bool failed;                                      /* set by act if it found a fault */

    pid_t pid[PROCS_MOST]; /* 0: the rank has ended */
    int code[PROCS_MOST];  /* exit code, minus the signal that ended it, or PROCS_HUNG */
    bool killed[PROCS_MOST];
    int64_t deadline_ns;
    struct procs_shared *shared;
    tutti_store *store; /* the ranks' store; act may use it, or free it and set NULL */
};

/* In a rank: the shared memory, and the rank's number. */
extern struct procs_shared *proc_shared;
extern int proc_rank;

double procs_seconds(int64_t since_ns);
void procs_sleep_ms(int ms);

/* ---- in a rank ------------------------------------------------------------------------------------------------- */

/* Returns the line number from the calling function, and says why on stderr, if the condition is false. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: %s; last error: %s\n", __FILE__, __LINE__, proc_rank, #condition,         \
                    tutti_last_error());                                                                               \
            return __LINE__;                                                                                           \
        }                                                                                                              \
    } while (0)

/* Expects that the call fails with this status and an error message that contains all the given words. */
#define EXPECT_ERROR(call, expected, ...)                                                                              \
    do {                                                                                                               \
        if (!proc_is_error(__FILE__, __LINE__, #call, (call), (expected), NULL,                                        \
                           (const char *const[]){__VA_ARGS__, NULL}))                                                  \
            return __LINE__;                                                                                           \
    } while (0)

/* Does the same with another text than tutti_last_error(). */
#define EXPECT_TEXT(text, status, expected, ...)                                                                       \
    do {                                                                                                               \
        if (!proc_is_error(__FILE__, __LINE__, #status, (status), (expected), (text),                                  \
                           (const char *const[]){__VA_ARGS__, NULL}))                                                  \
            return __LINE__;                                                                                           \
    } while (0)

#define EXPECT_WITHIN(since_ns, low_s, high_s)                                                                         \
    do {                                                                                                               \
        double took = procs_seconds(since_ns);                                                                         \
        if (took < (low_s) || took > (high_s)) {                                                                       \
            fprintf(stderr, "%s:%d: rank %d: took %.3f s, not %g to %g; last error: %s\n", __FILE__, __LINE__,         \
                    proc_rank, took, (double)(low_s), (double)(high_s), tutti_last_error());                           \
            return __LINE__;                                                                                           \
        }                                                                                                              \
    } while (0)

bool proc_is_error(const char *file, int line, const char *call, int status, int expected, const char *text,
                   const char *const *words);

/* Reports that this rank has reached a step. */
void proc_set_step(int step);

/* Sleeps 1 ms of a wait.  Ends the process if another rank has failed. */
void proc_wait_1ms(void);

/* Waits until a rank has reached a step. */
void proc_wait_for_step(int rank, int step);

/* Reports a step and waits until all of the first n ranks have reached it. */
void proc_barrier(int n, int step);

/* Reports a step and waits until the parent releases it (procs_release). */
void proc_wait_for_go(int step);

/* Makes the default group over tcp. */
int proc_init(int64_t timeout_ms);

/* Returns a client of the parent's store, or NULL. */
tutti_store *proc_store(void);

/* Makes a group of all ranks beside the default one, under a new name.  The caller frees *part after the group. */
int proc_group(tutti_store *store, const char *name, int size, int64_t timeout_ms, tutti_store **part,
               tutti_group **group);

/* Sum n elements over all ranks and check the result.  Return the status, or 1 after a wrong result. */
int proc_sum(tutti_group *group, int size, int64_t n);
int proc_sum_within(tutti_group *group, int size, int64_t n, int64_t timeout_ms);

/* Redirects stderr to a file without a name and returns its descriptor. */
int proc_capture_stderr(int *saved);

/* Restores stderr and copies the captured output into text. */
void proc_end_capture(int fd, int saved, char *text, size_t size);

/* Sets an environment variable to a number. */
void proc_set_int(const char *name, int value);

/* ---- in the parent --------------------------------------------------------------------------------------------- */

/* Reaps ranks that have ended.  Returns false if none is left. */
bool procs_reap(struct procs *procs);

/* Waits until all ranks have ended, and kills them after the deadline. */
void procs_wait(struct procs *procs);

/* Waits until every rank that still runs has reached step.  Returns false after the deadline, or if none runs. */
bool procs_wait_for_step(struct procs *procs, int step);

/* Wait until a rank that has called raise(SIGSTOP) is stopped, and until the main thread of a rank sleeps in the call
 * that it began after its last step.  Return at the deadline, or when the rank has ended. */
void procs_wait_until_stopped(struct procs *procs, int rank);
void procs_wait_until_asleep(struct procs *procs, int rank);

/* Releases ranks that wait in proc_wait_for_go for this step or an earlier one. */
void procs_release(struct procs *procs, int step);

/* Sends a signal to a rank that has not been reaped. */
void procs_signal(struct procs *procs, int rank, int signal);

/* Sets procs->failed, and prints why, if a rank other than the victim has reached its last step more than limit_s after
 * killed_ns. */
void procs_check_notified(struct procs *procs, int victim, int64_t killed_ns, double limit_s);

/* Returns a random number below a limit. */
uint64_t procs_random(uint64_t *state, uint64_t below);

/* Runs the ranks to their end.  Unless may_fail is set, asserts that each returned 0 or was killed by the test. */
void procs_run(struct procs *procs);

/* Does the same with defaults, and with an act in the parent. */
void procs_run_ranks(int size, proc_fn fn, void *argument);
void procs_run_with(int size, proc_fn fn, void (*act)(struct procs *procs, void *argument), void *argument);

#endif
