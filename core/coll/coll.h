/* Arguments of a collective's builder, and the table of all algorithms.
 *
 * A builder is a pure function of its arguments: it appends steps to a plan and does nothing else.  Every rank of the
 * group builds its own plan from the same arguments (except rank), so both ends of each message agree. */
#ifndef COLL_H
#define COLL_H

#include "plan/plan.h"

/* One block per rank, as the operation's tensors have them: either a list of tensors (block i is all of buffer
 * PLAN_IN(i) or PLAN_OUT(i)) or consecutive parts of one flat tensor.  Blocks may differ in size. */
struct coll_blocks {
    bool list;
    const int64_t *count; /* number of elements of block i; size entries */
    const int64_t *at;    /* element offset of block i in the flat tensor; size entries; NULL for a list */
};

/* The hosts of a group's ranks.  Messages within a host are cheaper than between hosts. */
struct coll_hosts {
    int n;            /* number of hosts, which are in the order of their first ranks */
    bool in_order;    /* each host's ranks are consecutive */
    int least, most;  /* fewest and most ranks on one host */
    const int *of;    /* the host of each rank */
    const int *begin; /* host h's ranks are rank[begin[h]] .. rank[begin[h + 1] - 1], ascending */
    const int *rank;
};

/* Groups the ranks by host.  `host` has a number for each rank's host, in any numbering.  Returns NULL if out of
 * memory.  The caller frees the result with free(). */
struct coll_hosts *coll_hosts_new(const int32_t *host, int size);

/* A backend's messages between hosts and within one.  All ranks of a group have the same values. */
struct coll_link {
    int64_t latency_ns;    /* latency of a small message */
    int64_t bytes_per_us;  /* bandwidth of a large message */
    int64_t segment_bytes; /* a good size for pipelining; 0: no segments */
    /* 0: assumed, from the other ones (cost.c) */
    int64_t overhead_ns;            /* the part of the latency for which a processor is busy, on each side */
    int64_t host_bytes_per_us;      /* bandwidth of all ranks of a host together */
    int64_t processor_bytes_per_us; /* bandwidth of a rank whose processor moves the bytes; 0: the network does */
    /* within a host */
    int64_t local_latency_ns, local_overhead_ns, local_bytes_per_us;
    int64_t host_cores; /* cores that the ranks of a host share; 0: one each */
};

struct coll_args;

/* Appends a part of an operation among members only, with the algorithm that coll_select returns for it.  The part's
 * input and output are ranges of the plan's buffers. */
typedef void (*coll_part_builder)(struct plan *plan, const struct coll_args *part, const int *members,
                                  struct plan_ref in, struct plan_ref out);

struct coll_args {
    tutti_kind kind;
    int rank, size;
    int root;      /* group rank */
    int64_t count; /* elements of this rank's flat tensor (broadcast, all_reduce, reduce), else of its own block */
    /* set if this rank has one block per rank on that side (gather and scatter: only root's); else zero */
    struct coll_blocks in, out;
    bool even;       /* all blocks have the same size (count), and every rank knows it */
    int64_t segment; /* elements of one pipelined message, at least 1 */
    bool is_part;    /* part of another operation: the steps before and after it proceed segment by segment */
    int lanes;       /* of a part: how many such parts use a host's network at once; 0: all ranks are on one host */
    bool in_place;   /* this rank's input is its output (or its own slice of it): coll_build makes them one buffer */
    bool average;    /* the last step divides by size */
    bool premul;     /* each input is scaled before it is reduced */
    bool ordered;    /* contributions are combined in the order of ranks */
    int64_t element; /* size of an element in bytes */
    const struct coll_link *link;   /* NULL: assumed */
    const struct coll_hosts *hosts; /* NULL: unknown; each rank counts as a host */
    coll_part_builder build_part;   /* set by coll_build, for algorithms composed of others */
};

/* The patterns of messages of a phase, for a piece of x bytes on N ranks. */
enum coll_pattern {
    COLL_TREE = 1,  /* binomial tree, x bytes along each edge */
    COLL_SPREAD,    /* binomial tree, each edge carries the blocks of the ranks below it */
    COLL_RING,      /* N - 1 rounds of x/N bytes to the next rank */
    COLL_CHAIN,     /* from rank to rank, x bytes */
    COLL_CUBE,      /* hypercube, x bytes in each round */
    COLL_HALVES,    /* hypercube, half of the data in one round, then a quarter, .. */
    COLL_QUADS,     /* hypercube, four ranks at a time, x bytes to each of three */
    COLL_TWO_TREES, /* two binary trees, of which each carries every second piece */
    COLL_FOLD,      /* to the ranks beyond a power of two, or from them: x bytes */
    COLL_SHIFT,     /* to the rank at distance 1, 2, 4, ..: x bytes */
    COLL_CIRCLES,   /* to the rank at distance N/2, N/4, .., 1, rounded up: the blocks of x/N bytes beyond it */
    COLL_SHIFT_4,   /* to the ranks at distance 1, 2, 3, then 4, 8, 12, ..: x bytes */
    COLL_BRUCK,     /* the same with 1, 2, 4, .. blocks of x/N bytes */
    COLL_SHUFFLE,   /* the same with half of the data in each round, copied before it is sent */
    COLL_FAN,       /* one rank sends to all others or receives from them: x bytes each */
    COLL_DEAL,      /* the same with x/N bytes each */
    COLL_PAIRS,     /* every rank sends x/N bytes to every other one */
    COLL_EACH,      /* one rank serves a tree of x/N bytes for each rank in turn */
    COLL_COPY,      /* each rank copies x bytes */
    COLL_OWN,       /* a rank copies its own block of x/N bytes, while it waits for messages */
    COLL_LANES,     /* parts within hosts and between them, one lane per rank of a host */
    COLL_LEADER     /* the same with one lane */
};

/* Flag of a phase: what arrives is reduced. */
enum { COLL_SUM = 0x80, COLL_PHASES = 4 };

/* What an algorithm processes as one piece: everything, or a segment, or one segment per rank or corner of a
 * hypercube. */
enum coll_piece { COLL_WHOLE, COLL_SEGMENTS, COLL_RANKS, COLL_CORNERS };

/* When an algorithm combines only consecutive ranks, the lower ones left: what an op that is not commutative needs. */
enum coll_in_order { COLL_IN_ORDER_NEVER, COLL_IN_ORDER_ROOT_0, COLL_IN_ORDER_ALWAYS };

typedef void (*coll_builder)(struct plan *plan, const struct coll_args *args);

struct coll_algorithm {
    tutti_kind kind;
    const char *name; /* the name in TUTTI_ALGO: "ring", "recursive_doubling" */
    coll_builder build;
    bool uneven;      /* also supports blocks that differ in size if each rank knows only its own counts */
    uint8_t in_order; /* an enum coll_in_order */
    uint8_t piece, phase[COLL_PHASES]; /* what it costs: see cost.h */
};

/* A backend's own path, which does the operation without a plan: `build` is NULL. */
struct coll_path {
    struct coll_algorithm algorithm; /* first member: see coll_path_of */
    int number;                      /* the backend's number of the path */
    const void *owner;               /* the backend */
};

static inline const struct coll_path *coll_path_of(const struct coll_algorithm *algorithm)
{
    return (const struct coll_path *)(const void *)algorithm;
}

/* Names, in TUTTI_ALGO's form, the algorithms whose order of reduction does not depend on the size, the root and the
 * placement of the ranks. */
extern const char coll_fixed_order[];

/* All algorithms; the last entry has a NULL name. */
extern const struct coll_algorithm coll_algorithms[];

/* A measured row (TUTTI_TUNING): applies up to max_bytes of the whole operation, unscaled. */
struct coll_tuned {
    tutti_kind kind;
    int64_t max_bytes;
    const struct coll_algorithm *algorithm;
};

/* Overrides of the table.  Names have precedence over measured rows, which have precedence over the table. */
struct coll_override {
    const char *names; /* the text of TUTTI_ALGO ("all_reduce=ring,broadcast=binomial", or one name), or NULL */
    const struct coll_tuned *tuned;
    int n_tuned;
    const struct coll_path *paths; /* paths of the group's backends, terminated by a NULL name; NULL: none */
};

enum { COLL_CHOICES = 16 }; /* largest number of algorithms of a kind */

/* The reason for a selection. */
struct coll_reason {
    enum { COLL_BY_COST, COLL_BY_TUNING, COLL_BY_NAME, COLL_BY_KIND } by;
    int64_t max_bytes;             /* limit of the row, by tuning */
    double estimate[COLL_CHOICES]; /* in ns, by coll_nth's number; by cost */
};

/* Returns the algorithm for this operation.  It depends only on kind, sizes, hosts, link and override, so it is the
 * same on all ranks.  Returns NULL, with the error message set, if the override names an algorithm that does not exist
 * or does not support these shapes.  override and reason may be NULL. */
const struct coll_algorithm *coll_select(const struct coll_args *args, const struct coll_override *override,
                                         struct coll_reason *reason);

/* Returns the elements of a pipelined message of this operation, according to the link; the same on all ranks. */
int64_t coll_segment(const struct coll_args *args);

/* coll_find returns the algorithm with this name, coll_nth the i-th algorithm of a kind; both return NULL if there is
 * none. coll_kind_name returns the name of a kind in TUTTI_ALGO, and coll_kind the kind of such a name, or -1. */
const struct coll_algorithm *coll_find(tutti_kind kind, const char *name, size_t length);
const struct coll_algorithm *coll_nth(tutti_kind kind, int i);
const char *coll_kind_name(tutti_kind kind);
int coll_kind(const char *name, size_t length);

/* Builds and finishes the plan of args with algorithm; returns NULL if out of memory.  recv_reduce_most: see plan_new.
 *
 * The buffers of each kind:
 * - broadcast: OUT(0) on every rank, with the data in root's
 * - all_reduce: IN(0) -> OUT(0)
 * - reduce: IN(0) -> OUT(0) on root
 * - all_gather: IN(0) -> out blocks
 * - gather: IN(0) -> out blocks on root
 * - scatter: in blocks on root -> OUT(0)
 * - reduce_scatter: in blocks -> OUT(0)
 * - all_to_all: in blocks -> out blocks
 * - barrier: none
 *
 * In place, the plan's steps use one buffer only: OUT(0) for all_reduce and reduce, the out blocks for all_gather,
 * gather and all_to_all, the in blocks for scatter and reduce_scatter.  The flag has no meaning on a rank with one side
 * only (all but root in reduce, gather and scatter; all in broadcast). */
struct plan *coll_build(const struct coll_algorithm *algorithm, const struct coll_args *args, int64_t recv_reduce_most);

#endif
