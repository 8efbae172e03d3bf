/* The rules of the operations, one per line, each with an id that cases name: see docs/semantics.md. */
#ifndef CONFORMANCE_LINES_H
#define CONFORMANCE_LINES_H

#include <stdbool.h>

/* X(id, section, ranks needed, where it runs, text).  Where: 'b' threads and processes, 'p' only processes, 's' only
 * processes that the suite spawned, 'c' needs CUDA, 'h' only with --huge, 'f' only in the full form. */
#define LINES(X)                                                                                                       \
    X(T_HELLO, "tutorial", 1, 'b', "hello: each rank knows its rank and the number of processes")                      \
    X(T_SEND_RECV, "tutorial", 2, 'b', "send_recv: rank 1 has 0 before and 42 after")                                  \
    X(T_EXCHANGE, "tutorial", 2, 'b', "isend_irecv: both ranks send first, no deadlock")                               \
    X(T_BROADCAST, "tutorial", 1, 'b', "broadcast: all have [1,2,3,4,5]; int64 [1,2,3]")                               \
    X(T_GATHER, "tutorial", 1, 'b', "gather: rank 0 has [[0],[1],..] in rank order")                                   \
    X(T_ALL_GATHER, "tutorial", 1, 'b', "all_gather: all have [[0],[1],..]")                                           \
    X(T_SCATTER, "tutorial", 1, 'b', "scatter: rank r has [r]")                                                        \
    X(T_REDUCE_SCATTER, "tutorial", 1, 'b', "reduce_scatter: each rank has the sum of all r")                          \
    X(T_REDUCE, "tutorial", 1, 'b', "reduce: rank 0 has the sum, the others are unchanged")                            \
    X(T_ALL_REDUCE, "tutorial", 1, 'b', "all_reduce: all have the sum; of rank + 1; the average")                      \
    X(T_TIMED, "tutorial", 1, 'b', "timed: reduce, then all_reduce, between two barriers")                             \
    X(T_ALL_TO_ALL, "tutorial", 1, 'b', "all_to_all_single: rank r has [r, r+n, r+2n, ..]")                            \
    X(T_ASYNC, "tutorial", 1, 'b', "async_all_reduce: computes meanwhile, then waits")                                 \
    X(T_SPAWN, "tutorial", 1, 's', "spawn: a program starts its own ranks")                                            \
    X(T_TRAIN, "tutorial", 1, 'b', "train: averaged gradients lead to the loss of one rank with the whole batch")      \
    X(I_METHOD, "init", 1, 'p', "no init_method and no store means env://; both, or a second call, is an error")       \
    X(I_ENV, "init", 1, 'p', "env:// names a variable that is missing, empty or unparsable, and its value")            \
    X(I_LAUNCHERS, "init", 1, 'p', "other launchers' variables are understood; with none, a world of one")             \
    X(I_URLS, "init", 1, 'p', "tcp://host:port?rank=R&world_size=N and file:///path?..; IPv4 and [IPv6]")              \
    X(I_BACKEND, "init", 1, 'b', "backend strings: any case, maps, fallback lists; an error names the wrong part")     \
    X(I_TIMEOUTS, "init", 1, 'b', "timeouts: 0 polls once, negative is an error, TUTTI_INFINITE exists")               \
    X(I_OUTSIDE, "init", 2, 'b', "rank and world size are -1 in a group that the caller is not a member of")           \
    X(G_NEW, "groups", 2, 'b', "new_group: all call in the same order, members or not")                                \
    X(G_MEMBERS_ONLY, "groups", 2, 'b', "with members_only, non-members need not call")                                \
    X(G_RANGE, "groups", 1, 'b', "ranks out of range or listed twice are an error")                                    \
    X(G_SPLIT, "groups", 1, 'b', "split_group(color, key) as in MPI")                                                  \
    X(G_OVERLAP, "groups", 2, 'b', "groups may overlap and be used at once")                                           \
    X(G_DESTROY, "groups", 2, 'b', "destroying one group leaves the others alone")                                     \
    X(G_RANKS, "groups", 2, 'b', "src and dst are global ranks unless .group_rank is set")                             \
    X(G_ROOT, "groups", 1, 'b', "a root or peer outside the group is an error")                                        \
    X(P_CALLS, "messages", 2, 'b', "send, recv, isend, irecv, batch_isend_irecv")                                      \
    X(P_TAGS, "messages", 2, 'b', "tags")                                                                              \
    X(P_ANY, "messages", 2, 'b', "recv from any source reports the global rank it came from")                          \
    X(P_ORDER, "messages", 2, 'b', "messages of one pair and tag arrive in order")                                     \
    X(P_BOTH, "messages", 2, 'b', "both sides may send first, at any size")                                            \
    X(P_SELF, "messages", 1, 'b', "send to self is an error")                                                          \
    X(P_MISMATCH, "messages", 2, 'b', "a receive of another size or dtype is MISMATCH, never a partial fill")          \
    X(P_UP_TO, "messages", 2, 'b', "a receive may take up to its tensor's size, and reports the size it received")     \
    X(P_ANY_TAG, "messages", 2, 'b', "a receive may take a message of any tag, and reports which")                     \
    X(P_PROBE, "messages", 2, 'b', "probe and iprobe describe a message and do not consume it")                        \
    X(P_BYTES, "messages", 2, 'b', "byte strings of a length that only the sender knows")                              \
    X(C_BROADCAST, "collectives", 1, 'b', "broadcast")                                                                 \
    X(C_ALL_REDUCE, "collectives", 1, 'b', "all_reduce")                                                               \
    X(C_REDUCE, "collectives", 1, 'b', "reduce")                                                                       \
    X(C_ALL_GATHER, "collectives", 1, 'b', "all_gather")                                                               \
    X(C_ALL_GATHER_INTO, "collectives", 1, 'b', "all_gather_into_tensor")                                              \
    X(C_GATHER, "collectives", 1, 'b', "gather")                                                                       \
    X(C_SCATTER, "collectives", 1, 'b', "scatter")                                                                     \
    X(C_SCAN, "collectives", 1, 'b', "scan: rank r has the reduction over ranks 0 to r")                               \
    X(C_EXSCAN, "collectives", 1, 'b', "exscan: over ranks 0 to r - 1, and rank 0 is unchanged")                       \
    X(C_REDUCE_SCATTER, "collectives", 1, 'b', "reduce_scatter")                                                       \
    X(C_REDUCE_SCATTER_TENSOR, "collectives", 1, 'b', "reduce_scatter_tensor")                                         \
    X(C_ALL_TO_ALL, "collectives", 1, 'b', "all_to_all")                                                               \
    X(C_ALL_TO_ALL_SINGLE, "collectives", 1, 'b', "all_to_all_single")                                                 \
    X(C_COALESCED, "collectives", 1, 'b', "coalesced groups of operations")                                            \
    X(C_BYTES, "collectives", 1, 'b', "object versions carry bytes of differing length")                               \
    X(C_UNEVEN, "collectives", 1, 'b', "lists may hold tensors of differing size per rank")                            \
    X(C_SPLITS, "collectives", 1, 'b', "all_to_all_single takes splits, zeros allowed")                                \
    X(C_SPLITS_CHECKED, "collectives", 1, 'b', "the splits' sums and their mirror on the peers are checked")           \
    X(C_REDUCE_LEAVES, "collectives", 2, 'b', "reduce leaves the buffers of all but the root untouched")               \
    X(C_SAME_BITS, "collectives", 2, 'b', "all_reduce returns the same bits on every rank")                            \
    X(C_IN_PLACE, "collectives", 1, 'b', "in place: the input is the output")                                          \
    X(C_OWN_SLICE, "collectives", 1, 'b', "in place: the input is the rank's own slice of the output")                 \
    X(C_LISTS, "collectives", 1, 'b', "only the root passes a list; elsewhere, or of another length, it is an error")  \
    X(C_ZERO, "collectives", 1, 'b', "zero elements are legal everywhere, with data NULL, and still synchronise")      \
    X(C_ONE_RANK, "collectives", 1, 'b', "one rank is legal everywhere")                                               \
    X(C_HUGE, "collectives", 2, 'h', "more than 2 GiB is legal everywhere")                                            \
    X(C_UNALIGNED, "collectives", 1, 'b', "unaligned pointers are legal")                                              \
    X(C_BARRIER, "collectives", 2, 'b', "barrier: none leaves before the last has entered")                            \
    X(C_MONITORED, "collectives", 2, 'b', "monitored_barrier names the ranks that did not call it")                    \
    X(R_WRAP, "reductions", 1, 'b', "SUM, PRODUCT: integers wrap")                                                     \
    X(R_STEPS, "reductions", 2, 'b', "16- and 8-bit floats: a step computes in float32, rounds to nearest even")       \
    X(R_NAN, "reductions", 1, 'b', "MIN, MAX: NaN propagates, on every rank alike")                                    \
    X(R_ZEROS, "reductions", 1, 'b', "MIN, MAX: -0.0 is less than 0.0")                                                \
    X(R_AVG, "reductions", 1, 'b', "AVG: SUM, then divided by the group's size")                                       \
    X(R_AVG_TRUNCATES, "reductions", 1, 'b', "AVG: integers truncate toward zero")                                     \
    X(R_PREMUL, "reductions", 1, 'b', "PREMUL_SUM: each input times a factor, then SUM")                               \
    X(R_BITWISE, "reductions", 1, 'b', "BAND, BOR, BXOR: integers and bool")                                           \
    X(R_REFUSED, "reductions", 1, 'b', "bitwise ops on floats, and all others outside the table, are unsupported")     \
    X(R_DTYPES, "reductions", 1, 'b', "all 17 dtypes")                                                                 \
    X(R_BOOL, "reductions", 1, 'b', "bool: SUM is or, PRODUCT is and")                                                 \
    X(R_COMPLEX, "reductions", 1, 'b', "complex: SUM, PRODUCT, AVG, PREMUL_SUM")                                       \
    X(R_REPEATS, "reductions", 1, 'b', "results repeat from run to run and do not depend on timing")                   \
    X(R_DETERMINISTIC, "reductions", 1, 'p', "TUTTI_DETERMINISTIC=1: one fixed tree over rank numbers")                \
    X(W_WAIT, "work", 1, 'b', "wait, with a timeout, after which the operation continues")                             \
    X(W_ASK, "work", 1, 'b', "is_completed, status, error text, op, sequence, duration")                               \
    X(W_THEN, "work", 1, 'b', "then: calls back once the operation is complete")                                       \
    X(W_ALL, "work", 1, 'b', "wait_all, wait_any")                                                                     \
    X(W_FD, "work", 2, 'b', "fd: a descriptor that polls readable once the operation is complete")                     \
    X(W_TWICE, "work", 1, 'b', "waiting twice returns the same result")                                                \
    X(W_FREE, "work", 1, 'b', "free before completion is legal")                                                       \
    X(W_ORDER, "work", 1, 'b', "operations of one group complete as if run in the order of issue")                     \
    X(W_MESSAGES, "work", 2, 'b', "point-to-point does not block collectives")                                         \
    X(M_ANY, "memory", 1, 'b', "tutti_alloc: on all ranks or some, any sizes, beside any other memory")                \
    X(M_AGAIN, "memory", 1, 'b', "memory may be freed and allocated again, at the same address too")                   \
    X(M_REFUSED, "memory", 1, 'b', "a request for too much memory is an error that names the size")                    \
    X(E_MISMATCH, "errors", 2, 'b', "differing calls are MISMATCH: operation, count, dtype, reduce op, root")          \
    X(E_TIMEOUT, "errors", 2, 'b', "a timeout names the rank that did not call")                                       \
    X(E_ARGUMENTS, "errors", 1, 'b', "bad arguments are refused and leave the group usable")                           \
    X(E_ABORT, "errors", 1, 'b', "abort ends all operations of the group on every rank")                               \
    X(K_STREAM, "cuda", 1, 'c', "a blocking call enqueues and returns; async_op, wait_stream")                         \
    X(K_CONTEXT, "cuda", 1, 'c', "no CUDA context on a device the program did not name")                               \
    X(K_SHARED, "cuda", 1, 'c', "two ranks on one GPU are an error that names the cause")                              \
    X(K_LACKS, "cuda", 1, 'c', "an operation that NCCL lacks is composed, staged or refused by name")

#define LINE_ID(id, section, ranks, where, text) L_##id,
enum line { L_NONE = 0, LINES(LINE_ID) LINE_COUNT };
#undef LINE_ID

struct line_text {
    const char *id, *section, *text;
    int ranks;
    char where;
};

extern const struct line_text lines[LINE_COUNT]; /* by line; lines[L_NONE] is empty */

#endif
