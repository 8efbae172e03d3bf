/* Tutti: counters of operations, bytes and waits, and where tutti-info finds them.
 *
 * Every process counts in memory that a reader may map: a memfd with the name TUTTI_STATS_FILE, which the kernel frees
 * with the process, however it ends.  A reader of the same user opens it through /proc/PID/fd.  It holds a
 * tutti_stats_page, then its slots, one for each group.  The values change while they are read.  Structs only grow at
 * their end; a reader checks `magic`, `version` and `slot_bytes`. */
#ifndef TUTTI_STATS_H
#define TUTTI_STATS_H

#include <stddef.h>
#include <tutti/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The capacity of tutti_stats.operations: new kinds use free entries. */
enum { TUTTI_STATS_KINDS = 32 };

typedef struct tutti_traffic {
    uint64_t sent, received; /* bytes of data, without headers */
} tutti_traffic;

/* Counters of the backends.  A backend adds to those that it knows; the others stay 0. */
typedef struct tutti_counters {
    tutti_traffic shared;  /* through shared memory: messages, and this rank's tensors of collectives */
    tutti_traffic wire;    /* messages over the network */
    uint64_t retries;      /* attempts to post to the network that it refused for the moment */
    uint64_t memory;       /* bytes of shared memory for messages: what all ranks of the host have from the start, and
                            * what this rank has taken since then */
    tutti_traffic library; /* through MPI or NCCL, which choose the way: messages, and this rank's tensors of
                            * collectives */
    uint64_t reserved[2];  /* 0 */
} tutti_counters;

/* What a group has done: see tutti_get_stats. */
typedef struct tutti_stats {
    /* Of the group. */
    uint64_t operations[TUTTI_STATS_KINDS]; /* issued, by tutti_kind */
    uint64_t failed;                        /* operations that have failed after they were issued */
    /* Of the group's tree: it shares its transports and its progress with the groups made from it. */
    uint64_t waits;  /* calls that had to wait for an operation */
    uint64_t sleeps; /* times that a caller or the progress thread went to sleep */
    tutti_counters transport;
} tutti_stats;

/* ---- the counters of a running process ------------------------------------------------------------------------- */

#define TUTTI_STATS_FILE "tutti-stats"
#define TUTTI_STATS_MAGIC UINT64_C(0x5354415449545554)

enum { TUTTI_STATS_VERSION = 1, TUTTI_STATS_SLOTS = 120, TUTTI_STATS_NAME = 64 };

typedef struct tutti_stats_page {
    uint64_t magic;
    uint32_t version, slot_bytes; /* sizeof(tutti_stats_slot) of the library */
    uint32_t n_slots, first;      /* number of slots; offset of the first one in the file */
    int32_t pid;
    uint32_t reserved;
} tutti_stats_page;

typedef struct tutti_stats_slot {
    uint32_t used;       /* 1: counts for a group */
    int32_t rank, world; /* of the group; -1 until they are known */
    int32_t global_rank; /* of this rank */
    uint32_t is_tree;    /* 1: the first group of a tree, which has the tree's counters */
    uint32_t reserved;
    char name[TUTTI_STATS_NAME];
    tutti_stats stats;
} tutti_stats_slot;

#ifdef __cplusplus
}
#endif
#endif
