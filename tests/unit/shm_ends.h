/* Ranks of one host for tests of shared memory.  They share one mapping of the segment, and are threads or are driven
 * in turn by the test. */
#ifndef SHM_ENDS_H
#define SHM_ENDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tcp/shm/coll/coll.h"

#include "tcp/shm/coll/parts.h"
#include "tcp/shm/ring_slot.h"

enum { ENDS = 3, ENDS_SILENCE_MS = 10000, ENDS_BYTES_MOST = 9000 };

struct end {
    struct shm shm;
    struct shm_peer peers[ENDS];
    int16_t local_ranks[ENDS];
    uint64_t got;    /* messages */
    int wrong, lost; /* contents; wake-ups */
    int rounds;
};

/* ---- a host ------------------------------------------------------------------------------------------------ */

/* A host that completes a request by setting the int of its owner: to 1, or to the error.  It reduces int64_t by sum.
 */
extern const tutti_host ends_host;
int ends_error(int status, const char *format, ...);
void ends_add(tutti_dtype dtype, tutti_reduce_op op, void *data, const void *const *src, int32_t n_src, int64_t n);

uint64_t ends_next_random(uint64_t *state);
/* Draws a number below n. */
int ends_pick(uint64_t *random, int n);
/* Draws a number below n that is the same for the same seed, number and `what`, so that all ranks draw alike. */
int ends_draw(uint64_t seed, int64_t number, uint64_t what, int n);

/* Clock of a host on which either way is the faster one at times.  Each thread sets its own seed. */
extern _Thread_local uint64_t ends_clock_seed;
int64_t ends_random_clock_ns(void);

/* ---- two ranks, or three ----------------------------------------------------------------------------------- */

/* Opens n ranks, with the first collective segment reserved. */
void ends_open(struct end *end, int n);
void ends_close(struct end *end, int n);
/* Returns the bytes of the segment that have memory. */
size_t ends_memory(const struct end *end);
/* Names the path of a scatter that would run as messages, so that it is native. */
void ends_name_direct(struct coll_segment *segment, const tutti_op *op);
/* Gives all ENDS ranks an arena that the others have mapped.  pid: that of all peers, or -1, whose memory nobody can
 * read. */
void ends_open_arenas(struct end end[ENDS], pid_t pid);

/* Runs body on two ranks, each a thread.  Asserts that nothing was wrong or lost. */
void ends_run(struct end end[2], void *(*body)(void *));
void ends_open_and_run(struct end end[2], void *(*body)(void *));

/* Return the content and the length of the message with this number. */
uint8_t ends_byte(uint64_t message, size_t i);
size_t ends_bytes(uint64_t message);

/* Counts a lost peer as wrong.  An event of a transport. */
void ends_on_lost(void *user, int32_t rank, const char *why);

/* True if the rank finds nothing to do as it goes to sleep.  It arms once: no sender's check may depend on a second
 * one.  colls may be NULL. */
bool ends_find_nothing(struct end *end, const struct coll_list *colls);
bool ends_find_no_message(struct end *end);

/* Runs one operation to its end.  Returns 1, or its error. */
int ends_run_op(struct end *end, struct coll_segment *coll, struct coll_list *running, const tutti_op *op,
                uint64_t number);

/* ---- a race ------------------------------------------------------------------------------------------------ */

/* On a busy machine the ranks seldom run at the same time, and 100,000 races would take minutes. */
enum { ENDS_RACES = 100000, ENDS_RACES_MS = 10000 };

/* Rank 0 posts something at the very moment at which rank 1 goes to sleep.  Rank 1 must find it, or be woken. */
struct race {
    void (*before)(struct end *, int i); /* on both ranks; may be NULL */
    void (*post)(struct end *, int i);
    bool (*find_nothing)(struct end *); /* arms rank 1 */
    void (*after)(struct end *, int i); /* on rank 1 */
};

void ends_run_races(struct end end[2], const struct race *race);

#endif
