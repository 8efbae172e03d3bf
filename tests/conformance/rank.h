/* A rank that drives the tcp plug-in's table itself, without the core.
 *
 * Each rank is a process with the test's own small host and a store in shared memory.  A rank prints what is wrong and
 * returns 1.  Only the parent asserts. */
#ifndef TESTS_RANK_H
#define TESTS_RANK_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tutti/backend.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/token.h"
#include "monotonic.h"
#include "shared_store.h"

enum { RANKS_MOST = 4, WAIT_MS = SHARED_STORE_WAIT_MS };

void rank_sleep_ms(int ms);

/* ---- the host ---------------------------------------------------------------------------------------------- */

extern _Thread_local char rank_last_error[512];
extern uint8_t rank_token[TUTTI_TOKEN_BYTES];

struct done {
    bool is;
    int status;
    char text[512];
};

/* Reports of the plug-in about other ranks. */
struct notified {
    int messages, message_from, lost, lost_rank;
    size_t message_bytes;
    bool left;
    uint8_t message[TUTTI_NOTIFY_MAX];
    char why[256];
};

/* Datagrams dropped for a wrong secret, and whether this rank falsifies its own secrets. */
extern _Thread_local int rank_dropped;
extern bool rank_spoils_secrets;

/* Lines that this rank, which may be a thread, logged at INFO or above, and the last one. */
extern _Thread_local int rank_logged;

extern const tutti_host rank_host;

/* Sets rank_last_error and returns status, as tutti_host's entry does. */
int rank_error(int status, const char *format, ...);

/* ---- a rank ------------------------------------------------------------------------------------------------ */

struct rank {
    const tutti_backend *backend;
    struct shared_store *shared;
    int32_t rank, world;
    int32_t globals[RANKS_MOST];
    void *state; /* of the group tree's first group */
    struct notified notified;
};

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "rank %d, line %d: %s (last error: %s)\n", self->rank, __LINE__, #condition,               \
                    rank_last_error);                                                                                  \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

/* Returns zeroed memory for a group. */
void *rank_state_new(const tutti_backend *backend);

/* Open and close the group tree's first group. */
int rank_open(struct rank *self);
void rank_close(struct rank *self);

/* Makes progress once, or sleeps at most 20 ms. */
void rank_progress(struct rank *self);

/* Makes progress for ms milliseconds. */
void rank_progress_ms(struct rank *self, int ms);

/* Makes progress until another rank has reported name.  Exits with 9 if it does not. */
void rank_await(struct rank *self, const char *name, int rank);

/* Reports that this rank has reached name. */
void rank_report(struct rank *self, const char *name);

/* Reports name, and makes progress until all ranks have. */
void rank_barrier(struct rank *self, const char *name);

enum { E = TUTTI_REQUEST_EXPECTED };

/* A pending message. */
struct message {
    tutti_request request;
    struct done done;
};

/* Records what send or recv returned. */
void rank_begun(struct message *m, int status);

/* Starts a send or a receive in a group with this state. */
void rank_start(struct rank *self, void *state, struct message *m, bool send, const tutti_request *request);

/* Start a send or a receive in the group tree's first group. */
void rank_send(struct rank *self, struct message *m, int32_t peer, uint64_t tag, void *data, size_t bytes,
               uint32_t flags);
void rank_recv(struct rank *self, struct message *m, int32_t peer, uint64_t tag, void *data, size_t bytes,
               uint32_t flags);

/* Makes progress until the message ends.  Returns its status, or 1 after WAIT_MS. */
int rank_wait(struct rank *self, struct message *m);

/* Fill with a pattern that depends on the seed, and compare with it. */
void rank_fill(void *data, size_t bytes, unsigned seed);
bool rank_is_filled(const void *data, size_t bytes, unsigned seed);

/* Returns the processor time between two measurements. */
double rank_cpu_ms(const struct rusage *from, const struct rusage *to);

/* True if the ranks use a provider's datagram endpoints instead of connected ones. */
bool rank_is_rdm(void);

/* ---- the parent -------------------------------------------------------------------------------------------- */

/* A rank's part of a test.  Returns 0, or 1 after it has printed what is wrong. */
typedef int scenario(struct rank *self);

/* Runs body as one rank in this process or thread. */
int rank_main(scenario *body, struct shared_store *shared, int rank, int world);

/* Runs body as world processes, which must all return 0. */
void rank_run(scenario *body, int world);

/* How long a peer may be silent over datagrams.  It is long, because a rank of a busy machine may not run for seconds,
 * but short in rank_run_until_silent, whose tests wait for that silence. */
#define PATIENT_MS "20000"
#define SILENT_MS "3000"

/* Does the same for peers that fall silent. expected[i] is rank i's exit code, or minus its signal.  NULL: all 0. */
void rank_run_until_silent(scenario *body, int world, const int *expected);

/* The tests of a program: those that run over libfabric and over shared memory, and those of libfabric alone. */
struct rank_tests {
    const struct CMUnitTest *all, *network;
    size_t n_all, n_network;
};

/* Runs the tests over each transport, or with the argument "rdm" over the datagram endpoints of TUTTI_FABRIC_PROVIDER
 * alone.  TCP_ONLY in the environment filters the tests by name.  Returns main's exit status. */
int rank_tests_main(int argc, char **argv, const struct rank_tests *tests);

#endif
