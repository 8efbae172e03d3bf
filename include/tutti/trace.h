/* Tutti: the format of trace files, rank-R.pid-P.tuttitrace, which TUTTI_TRACE=DIR writes and tutti-trace reads.
 *
 * A file is a sequence of blocks: a header, then `bytes` of content, both multiples of 8.  The first block is
 * TUTTI_TRACE_BEGIN.  Numbers are in the byte order of the machine.  A block is written at once when its buffer is
 * full, so a file that was cut short, by a full disk or a killed process, is whole up to its last whole record.
 *
 * Times are ticks of a clock that TUTTI_TRACE_CLOCK blocks relate to CLOCK_MONOTONIC of the host.  `offset_ns` of
 * TUTTI_TRACE_BEGIN and of later TUTTI_TRACE_ALIGN blocks relates that to the clock of rank 0's host. */
#ifndef TUTTI_TRACE_H
#define TUTTI_TRACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_TRACE_MAGIC UINT32_C(0x52545454)
#define TUTTI_TRACE_SUFFIX ".tuttitrace"

enum { TUTTI_TRACE_VERSION = 2 };

enum tutti_trace_type {
    TUTTI_TRACE_BEGIN = 1, /* one tutti_trace_begin */
    TUTTI_TRACE_CLOCK,     /* one tutti_trace_clock */
    TUTTI_TRACE_ALIGN,     /* one tutti_trace_align */
    TUTTI_TRACE_GROUP,     /* one tutti_trace_group, then its world_size global ranks, int32_t, padded to 8 bytes */
    TUTTI_TRACE_OPS,       /* tutti_trace_op */
    TUTTI_TRACE_RANGES     /* tutti_trace_range */
};

typedef struct tutti_trace_block {
    uint32_t magic; /* TUTTI_TRACE_MAGIC */
    uint32_t type;
    uint64_t bytes;
} tutti_trace_block;

typedef struct tutti_trace_begin {
    uint32_t version, op_bytes; /* sizeof(tutti_trace_op) */
    int32_t rank, world_size;   /* in the tree's first traced group */
    int32_t pid, reserved;
    int64_t realtime_ns; /* when the file was made */
    char host[64];
    char library[32]; /* tutti_version() */
} tutti_trace_begin;

typedef struct tutti_trace_clock {
    uint64_t ticks;
    int64_t monotonic_ns;
} tutti_trace_clock;

/* Time of rank 0's host = this host's monotonic time + offset_ns, give or take error_ns. */
typedef struct tutti_trace_align {
    int64_t offset_ns;
    int64_t error_ns; /* -1: unknown, the exchange has failed */
} tutti_trace_align;

typedef struct tutti_trace_group {
    uint64_t id;     /* the same on all members */
    uint32_t number; /* in this file: tutti_trace_op.group */
    int32_t rank, world_size;
    uint32_t reserved;
    char name[64];
    char backend[64];
} tutti_trace_group;

enum tutti_trace_flags {
    TUTTI_TRACE_ASYNC = 1,
    TUTTI_TRACE_BY_THREAD = 2, /* ended by the progress thread */
    TUTTI_TRACE_FAILED = 4,
    TUTTI_TRACE_LATE = 8 /* waited for the memory of an earlier operation: `started` counts */
};

typedef struct tutti_trace_op {
    uint64_t issued, ended; /* ticks */
    uint64_t bytes;
    uint32_t started; /* ticks after `issued`; 0 unless LATE */
    union {
        uint32_t reduce_ns; /* of collectives: see tutti_tool_op */
        int32_t tag;        /* of messages */
    };
    uint32_t sequence; /* the low 32 bits; 0: a message */
    int32_t root;      /* root or peer, in the group; -1: none */
    uint32_t group;
    uint8_t kind, flags;
    uint16_t dtype;
} tutti_trace_op;

typedef struct tutti_trace_range {
    uint64_t begin, end; /* ticks */
    uint32_t thread;     /* the system's thread id */
    uint32_t depth;      /* number of ranges around it */
    char name[40];
} tutti_trace_range;

#ifdef __cplusplus
}
#endif
#endif
