/* Flight recorder: the last operations of a group.
 *
 * A group has two rings, so that a program that sends millions of messages does not push its collectives out.  A record
 * is one cache line.  It is written when its operation is issued, and marked when the operation ends.  Rings start
 * small and grow while they are used, until all rings of the process have RECORD_BUDGET bytes.  The engine's lock of
 * the group guards them.
 *
 * Recording reads no clock for most operations: reading it would take longer than the rest.  A record's time is the
 * engine's, which is read again after a number of operations that together took about RECORD_READ_NS. */
#ifndef RECORD_H
#define RECORD_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <tutti/backend.h>

#include "op/op.h"

enum {
    RECORDS_FIRST = 16,
    RECORDS_GROWTH = 8,
    RECORDS_MOST = 1024,
    RECORD_READ_MOST = 64,    /* operations between two readings of the clock */
    RECORD_READ_NS = 1000000, /* wanted time between two readings */
    RECORD_BUDGET = 16 << 20
};

enum record_state { RECORD_UNDER_WAY, RECORD_DONE, RECORD_FAILED, RECORD_UNDONE };

enum { RECORD_STATE_AT = 8, RECORD_STATUS_AT = 16, RECORD_TIME_SHIFT = 10 };

struct record {
    uint64_t fingerprint;
    uint32_t kind_state; /* tutti_kind, from bit 8 on a record_state, from bit 16 on the status */
    int32_t dtype;
    int32_t root; /* root or peer: rank in the group */
    int32_t tag;
    uint32_t mark; /* number of the latest tutti_mark; 0: none */
    _Alignas(8) uint64_t sequence;
    int64_t numel; /* elements of this rank's first tensor */
    int64_t issued_ns;
    uint32_t started, ended; /* time after issued_ns, in units of 2^RECORD_TIME_SHIFT ns; 0: not known */
};

static_assert(sizeof(struct record) == 64, "a record is one cache line");

struct record_ring {
    struct record *slots;      /* NULL before the first operation */
    uint64_t next;             /* number of records so far */
    uint64_t due;              /* record_refill comes before the record of this number */
    uint32_t mask;             /* number of slots minus 1 */
    uint32_t window;           /* operations between the last two readings of the clock */
    int64_t read_ns;           /* time of the last one */
    struct record *retired[2]; /* smaller arrays: a thread that does not get the lock may still read one */
    struct record only;        /* the one slot if there is no memory */
};

/* The number of the latest tutti_mark. */
extern _Atomic uint32_t record_mark;

/* Makes or enlarges the ring, and reads the clock. */
void record_refill(struct record_ring *ring, int64_t *clock_ns);

/* Frees the ring's memory. */
void record_free(struct record_ring *ring);

/* Returns the next record, whose handle is the ring's new `next`.  clock_ns: the engine's last reading of the clock. */
static inline struct record *record_take(struct record_ring *ring, int64_t *clock_ns)
{
    uint64_t number = ring->next;
    if (__builtin_expect(number == ring->due, 0)) record_refill(ring, clock_ns);
    ring->next = number + 1;
    __builtin_prefetch(&ring->slots[(number + 1) & ring->mask], 1); /* a ring is larger than the first-level cache */
    return &ring->slots[number & ring->mask];
}

/* Fills a record but for its time. */
static inline void record_fill(struct record *record, const tutti_op *op, uint64_t fingerprint)
{
    record->fingerprint = fingerprint;
    record->kind_state = (uint32_t)op->kind;
    record->dtype = (int32_t)op->dtype;
    record->root = op->root;
    record->tag = op->tag;
    record->mark = atomic_load_explicit(&record_mark, memory_order_relaxed); /* relaxed: only a number */
    record->sequence = op->sequence;
    record->numel = op->n_in > 0 ? op->in->numel : op->n_out > 0 ? op->out->numel : 0;
    record->started = record->ended = 0;
}

/* Records an operation that is issued.  clock_ns: the engine's last reading of the clock.  Returns the record's handle,
 * which is not 0. */
static inline uint32_t record_issue(struct record_ring *ring, int64_t *clock_ns, const tutti_op *op,
                                    uint64_t fingerprint)
{
#ifdef TUTTI_RECORD_OFF /* to measure what recording costs: tests/soak/overhead.sh */
    return 0;
#endif
    struct record *record = record_take(ring, clock_ns);
    record_fill(record, op, fingerprint);
    record->issued_ns = *clock_ns;
    return (uint32_t)ring->next;
}

/* Does the same for an operation that differs from that of another record in root and tag alone. */
static inline uint32_t record_issue_like(struct record_ring *ring, int64_t *clock_ns, const struct record *like,
                                         int32_t root, int32_t tag)
{
#ifdef TUTTI_RECORD_OFF
    return 0;
#endif
    struct record *record = record_take(ring, clock_ns);
    *record = *like;
    record->root = root;
    record->tag = tag;
    record->mark = atomic_load_explicit(&record_mark, memory_order_relaxed); /* relaxed: only a number */
    record->issued_ns = *clock_ns;
    return (uint32_t)ring->next;
}

/* Returns the record of a handle, or NULL if a later one has replaced it. */
static inline struct record *record_find(struct record_ring *ring, uint32_t handle)
{
    uint32_t back = (uint32_t)ring->next - handle; /* number of later records */
    return handle != 0 && back <= ring->mask ? &ring->slots[(handle - 1) & ring->mask] : NULL;
}

/* Takes back the latest record: its operation was not issued.  The record may have replaced the oldest one, in whose
 * place it is marked. */
static inline void record_undo(struct record_ring *ring, uint32_t handle)
{
    if (handle == 0 || handle != (uint32_t)ring->next) return;
    ring->next--;
    ring->slots[ring->next & ring->mask].kind_state |= RECORD_UNDONE << RECORD_STATE_AT;
}

/* Returns a time after the record's beginning as the record holds it. */
static inline uint32_t record_time(const struct record *record, int64_t now_ns)
{
    int64_t units = (now_ns - record->issued_ns) >> RECORD_TIME_SHIFT;
    return units <= 0 ? 1 : units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;
}

/* Marks a record: its operation has begun after waiting for an earlier one. */
static inline void record_start(struct record_ring *ring, uint32_t handle, int64_t now_ns)
{
    struct record *record = record_find(ring, handle);
    if (record != NULL) record->started = record_time(record, now_ns);
}

/* Marks a record: its operation has ended.  now_ns: 0 if the operation's clock was not started. */
static inline void record_end(struct record_ring *ring, uint32_t handle, int status, int64_t now_ns)
{
    struct record *record = record_find(ring, handle);
    if (record == NULL) return;
    uint32_t state = status == TUTTI_OK ? RECORD_DONE : RECORD_FAILED;
    record->kind_state |= state << RECORD_STATE_AT | (uint32_t)status << RECORD_STATUS_AT;
    if (now_ns > 0) record->ended = record_time(record, now_ns);
}

#endif
