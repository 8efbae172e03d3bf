/* Tutti: table of the kinds of operation.
 *
 * Code that needs a property of a kind reads its row.  So a new kind is a new row, not a new case in many places.  The
 * table is in a header because plug-ins do not link to Tutti.  A plug-in that was built with an older table takes a
 * newer kind as unknown: neither a collective nor a message, with no tensors. */
#ifndef TUTTI_KINDS_H
#define TUTTI_KINDS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds of operation.  Their values are part of the plug-in ABI: append a kind here, and its row below. */
typedef enum tutti_kind {
    TUTTI_BROADCAST = 0,
    TUTTI_ALL_REDUCE,
    TUTTI_REDUCE,
    TUTTI_ALL_GATHER,
    TUTTI_GATHER,
    TUTTI_SCATTER,
    TUTTI_REDUCE_SCATTER,
    TUTTI_ALL_TO_ALL,
    TUTTI_BARRIER,
    TUTTI_MONITORED_BARRIER,
    TUTTI_SEND,
    TUTTI_RECV,
    TUTTI_COALESCED, /* several operations started and completed as one */
    TUTTI_COPY,      /* between device and host memory; only for plug-ins (tutti_backend.stage_open) */
    TUTTI_PROBE,     /* describes a message without receiving it; never native */
    TUTTI_SCAN,      /* rank r gets the reduction over ranks 0 to r */
    TUTTI_EXSCAN,    /* over ranks 0 to r - 1; rank 0 gets nothing */
    TUTTI_KIND_COUNT
} tutti_kind;

typedef enum tutti_kind_class {
    TUTTI_CLASS_INTERNAL = 0, /* made by the core */
    TUTTI_CLASS_COLLECTIVE,   /* all ranks of the group take part */
    TUTTI_CLASS_MESSAGE       /* two ranks take part; tutti_op.root is the peer */
} tutti_kind_class;

/* The data that a rank passes on one side, in or out. */
enum tutti_side {
    TUTTI_SIDE_NONE = 0,
    TUTTI_SIDE_ONE = 1,    /* one tensor: a whole, or this rank's block */
    TUTTI_SIDE_BLOCKS = 2, /* a block per rank: parts of one tensor, or a list of tensors */
    TUTTI_SIDE_ROOT = 4,   /* with either: only the root has this side */
    TUTTI_SIDE_ROOT_ONE = TUTTI_SIDE_ROOT | TUTTI_SIDE_ONE,
    TUTTI_SIDE_ROOT_BLOCKS = TUTTI_SIDE_ROOT | TUTTI_SIDE_BLOCKS,
    TUTTI_SIDE_LATER = 8, /* all ranks but 0 have this side */
    TUTTI_SIDE_LATER_ONE = TUTTI_SIDE_LATER | TUTTI_SIDE_ONE
};

/* clang-format off */
/*    kind               name                 class       in           out          root   reduces */
#define TUTTI_KINDS(X)                                                                                 \
    X(BROADCAST,         "broadcast",         COLLECTIVE, NONE,        ONE,         true,  false)      \
    X(ALL_REDUCE,        "all_reduce",        COLLECTIVE, ONE,         ONE,         false, true)       \
    X(REDUCE,            "reduce",            COLLECTIVE, ONE,         ROOT_ONE,    true,  true)       \
    X(ALL_GATHER,        "all_gather",        COLLECTIVE, ONE,         BLOCKS,      false, false)      \
    X(GATHER,            "gather",            COLLECTIVE, ONE,         ROOT_BLOCKS, true,  false)      \
    X(SCATTER,           "scatter",           COLLECTIVE, ROOT_BLOCKS, ONE,         true,  false)      \
    X(REDUCE_SCATTER,    "reduce_scatter",    COLLECTIVE, BLOCKS,      ONE,         false, true)       \
    X(ALL_TO_ALL,        "all_to_all",        COLLECTIVE, BLOCKS,      BLOCKS,      false, false)      \
    X(BARRIER,           "barrier",           COLLECTIVE, NONE,        NONE,        false, false)      \
    X(MONITORED_BARRIER, "monitored_barrier", COLLECTIVE, NONE,        NONE,        false, false)      \
    X(SEND,              "send",              MESSAGE,    ONE,         NONE,        false, false)      \
    X(RECV,              "recv",              MESSAGE,    NONE,        ONE,         false, false)      \
    X(COALESCED,         "coalesced",         INTERNAL,   NONE,        NONE,        false, false)      \
    X(COPY,              "copy",              INTERNAL,   NONE,        NONE,        false, false)      \
    X(PROBE,             "probe",             MESSAGE,    NONE,        NONE,        false, false)      \
    X(SCAN,              "scan",              COLLECTIVE, ONE,         ONE,         false, true)       \
    X(EXSCAN,            "exscan",            COLLECTIVE, ONE,         LATER_ONE,   false, true)
/* clang-format on */

typedef struct tutti_kind_row {
    char name[20]; /* no pointer: the table needs no relocation */
    uint8_t group; /* a tutti_kind_class */
    uint8_t in, out;
    bool has_root, reduces;
} tutti_kind_row;

enum tutti_kind_position {
#define TUTTI_KIND_POSITION_OF(kind, name, group, in, out, has_root, reduces) TUTTI_KIND_POSITION_##kind,
    TUTTI_KINDS(TUTTI_KIND_POSITION_OF)
#undef TUTTI_KIND_POSITION_OF
        TUTTI_KIND_ROWS
};

#define TUTTI_KIND_CHECK(kind, name, group, in, out, has_root, reduces)                                                \
    static_assert((int)TUTTI_KIND_POSITION_##kind == (int)TUTTI_##kind, "row " name " is out of order");
TUTTI_KINDS(TUTTI_KIND_CHECK)
#undef TUTTI_KIND_CHECK
static_assert((int)TUTTI_KIND_ROWS == (int)TUTTI_KIND_COUNT, "a kind has no row");

/* Returns the row of a kind.  A kind may be from a peer, so unknown kinds have a row too. */
static inline const tutti_kind_row *tutti_kind_find(tutti_kind kind)
{
    static const tutti_kind_row rows[TUTTI_KIND_COUNT + 1] = {
#define TUTTI_KIND_ROW(kind, name, group, in, out, has_root, reduces)                                                  \
    {name, TUTTI_CLASS_##group, TUTTI_SIDE_##in, TUTTI_SIDE_##out, has_root, reduces},
        TUTTI_KINDS(TUTTI_KIND_ROW)
#undef TUTTI_KIND_ROW
            {"unknown operation", TUTTI_CLASS_INTERNAL, TUTTI_SIDE_NONE, TUTTI_SIDE_NONE, false, false},
    };
    return &rows[(unsigned)kind < (unsigned)TUTTI_KIND_COUNT ? (int)kind : (int)TUTTI_KIND_COUNT];
}

/* The properties as sets, with one bit per kind: every call tests them, and a bit of a constant costs less than a
 * row. */
#define TUTTI_KIND_BIT(kind, is_in) | (int)((is_in) ? UINT32_C(1) << TUTTI_##kind : 0)
#define TUTTI_KIND_IF_COLLECTIVE(kind, name, group, in, out, has_root, reduces)                                        \
    TUTTI_KIND_BIT(kind, TUTTI_CLASS_##group == TUTTI_CLASS_COLLECTIVE)
#define TUTTI_KIND_IF_MESSAGE(kind, name, group, in, out, has_root, reduces)                                           \
    TUTTI_KIND_BIT(kind, TUTTI_CLASS_##group == TUTTI_CLASS_MESSAGE)
#define TUTTI_KIND_IF_REDUCES(kind, name, group, in, out, has_root, reduces) TUTTI_KIND_BIT(kind, reduces)
#define TUTTI_KIND_IF_ROOT(kind, name, group, in, out, has_root, reduces) TUTTI_KIND_BIT(kind, has_root)
#define TUTTI_KIND_IF_IN(kind, name, group, in, out, has_root, reduces)                                                \
    TUTTI_KIND_BIT(kind, TUTTI_SIDE_##in &TUTTI_SIDE_BLOCKS)
#define TUTTI_KIND_IF_OUT(kind, name, group, in, out, has_root, reduces)                                               \
    TUTTI_KIND_BIT(kind, TUTTI_SIDE_##out &TUTTI_SIDE_BLOCKS)

enum tutti_kind_set {
    TUTTI_KINDS_COLLECTIVE = 0 TUTTI_KINDS(TUTTI_KIND_IF_COLLECTIVE),
    TUTTI_KINDS_MESSAGE = 0 TUTTI_KINDS(TUTTI_KIND_IF_MESSAGE),
    TUTTI_KINDS_REDUCING = 0 TUTTI_KINDS(TUTTI_KIND_IF_REDUCES),
    TUTTI_KINDS_ROOTED = 0 TUTTI_KINDS(TUTTI_KIND_IF_ROOT),
    TUTTI_KINDS_IN_BLOCKS = 0 TUTTI_KINDS(TUTTI_KIND_IF_IN),
    TUTTI_KINDS_OUT_BLOCKS = 0 TUTTI_KINDS(TUTTI_KIND_IF_OUT)
};

#undef TUTTI_KIND_BIT
#undef TUTTI_KIND_IF_COLLECTIVE
#undef TUTTI_KIND_IF_MESSAGE
#undef TUTTI_KIND_IF_REDUCES
#undef TUTTI_KIND_IF_ROOT
#undef TUTTI_KIND_IF_IN
#undef TUTTI_KIND_IF_OUT

static_assert((int)TUTTI_KIND_COUNT < 32, "a set has no bit for a kind");

static inline bool tutti_kind_is_in(tutti_kind kind, enum tutti_kind_set set)
{
    return (unsigned)kind < 32 && ((uint32_t)set >> (unsigned)kind & 1) != 0;
}

static inline bool tutti_kind_is_collective(tutti_kind kind)
{
    return tutti_kind_is_in(kind, TUTTI_KINDS_COLLECTIVE);
}

static inline bool tutti_kind_is_message(tutti_kind kind)
{
    return tutti_kind_is_in(kind, TUTTI_KINDS_MESSAGE);
}

static inline bool tutti_kind_reduces(tutti_kind kind)
{
    return tutti_kind_is_in(kind, TUTTI_KINDS_REDUCING);
}

static inline bool tutti_kind_has_root(tutti_kind kind)
{
    return tutti_kind_is_in(kind, TUTTI_KINDS_ROOTED);
}

/* True if the side has a block per rank, on the ranks that have that side. */
static inline bool tutti_kind_in_blocks(tutti_kind kind)
{
    return tutti_kind_is_in(kind, TUTTI_KINDS_IN_BLOCKS);
}

static inline bool tutti_kind_out_blocks(tutti_kind kind)
{
    return tutti_kind_is_in(kind, TUTTI_KINDS_OUT_BLOCKS);
}

static inline bool tutti_kind_has_blocks(tutti_kind kind)
{
    return tutti_kind_in_blocks(kind) || tutti_kind_out_blocks(kind);
}

/* True if each rank that passes a list of blocks knows the sizes of all ranks' blocks. */
static inline bool tutti_kind_knows_blocks(tutti_kind kind)
{
    return tutti_kind_in_blocks(kind) != tutti_kind_out_blocks(kind) && !tutti_kind_has_root(kind);
}

static inline bool tutti_side_is_there(int side, int rank, int root)
{
    if ((side & TUTTI_SIDE_ROOT) != 0 && rank != root) return false;
    return side != TUTTI_SIDE_NONE && ((side & TUTTI_SIDE_LATER) == 0 || rank > 0);
}

/* True if this rank of the group has an input (has_in) or an output (has_out). */
static inline bool tutti_kind_has_in(tutti_kind kind, int rank, int root)
{
    return tutti_side_is_there(tutti_kind_find(kind)->in, rank, root);
}

static inline bool tutti_kind_has_out(tutti_kind kind, int rank, int root)
{
    return tutti_side_is_there(tutti_kind_find(kind)->out, rank, root);
}

#ifdef __cplusplus
}
#endif
#endif
