/* Tutti: callbacks for tools: tracers, profilers, counters.
 *
 * A tool is a table of callbacks that sees every operation and every group of its process.  There are three ways to
 * register one:
 *
 *   TUTTI_TOOL=/path/tool.so   the library loads it and takes the table `tutti_tool_v1` that it exports
 *   LD_PRELOAD=/path/tool.so   the library finds the same symbol in the process
 *   tutti_register_tool        for tools that are part of the program
 *
 *     static void count(void *context, const tutti_tool_op *op, void **data) { .. }
 *     const tutti_tool tutti_tool_v1 = {TUTTI_TOOL_HEADER, .name = "count", .op_ended = count};
 *
 * A tool sees the groups that are made after it was registered.  It stays registered until the process ends.
 *
 * ORDER.  Of each operation a tool gets op_issued, then at most one op_started, then either op_ended or op_failed.  A
 * call that was refused, because of its arguments or because its group has failed, is not an operation.  An operation
 * is started when a backend gets it.  Parts of a coalesced range are operations of their own.
 * A probe that finds no message ends with op_failed and ABORTED.  op_ended may come from
 * another thread than op_issued.
 *
 * THREADS.  The op callbacks of one group tree (a group and all groups made from it) are called one at a time, under
 * the tree's lock.  Those of different trees may run at the same time in several threads.  group_made and group_ended
 * are called without a lock, by the thread that makes or destroys the group.  range_pushed and range_popped are called
 * by the thread that calls tutti_range_push and tutti_range_pop.
 *
 * RE-ENTRANCY.  An op callback must not call any function of Tutti, and must not block: every operation of the tree
 * waits for it.  group_made, group_ended and the range callbacks may call functions that only return information
 * (tutti_get_rank, ..), and group_made may use group->store.  None may start an operation.
 *
 * VERSIONS.  Structs only grow at the end.  `size` is the size of the struct that its maker knew.  The library calls
 * the callbacks that the tool's size covers.  A tool tests for a later field with TUTTI_TOOL_HAS. */
#ifndef TUTTI_TOOL_H
#define TUTTI_TOOL_H

#include <stddef.h>
#include <tutti/store.h>
#include <tutti/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_TOOL_ABI 1
#define TUTTI_TOOL_SYMBOL "tutti_tool_v1"
#define TUTTI_TOOL_HEADER .abi = TUTTI_TOOL_ABI, .size = sizeof(tutti_tool)
#define TUTTI_TOOL_EXPORT __attribute__((visibility("default")))

/* True if *given, a struct of the library, is long enough to contain the field. */
#define TUTTI_TOOL_HAS(given, field) ((given)->size >= offsetof(__typeof__(*(given)), field) + sizeof((given)->field))

/* The most tools of one process. */
enum { TUTTI_TOOLS_MOST = 4 };

/* A group, as its member sees it. */
typedef struct tutti_tool_group {
    uint32_t size;
    int32_t rank; /* in the group */
    int32_t world_size;
    int32_t local_rank;          /* among the ranks of the host, from the launcher; -1 if unknown */
    const int32_t *global_ranks; /* world_size entries */
    const int32_t *hosts;        /* the host of each rank, numbered from 0, or NULL if unknown */
    uint64_t number;             /* of the group in this process, from 1; no other group gets it */
    uint64_t tree;               /* the same number for all groups of a tree, unlike that of other trees */
    uint64_t id;                 /* the same on all members */
    const char *name;
    const char *backend; /* as tutti_get_backend */
    tutti_store *store;  /* the group's part of the store; only in group_made, else NULL */
    int64_t timeout_ms;  /* of its operations */
} tutti_tool_group;

/* An operation. */
typedef struct tutti_tool_op {
    uint32_t size;
    tutti_kind kind;
    tutti_reduce_op reduce_op;
    tutti_dtype dtype;
    int32_t root; /* root or peer: rank in the group; TUTTI_ANY_SOURCE; -1 if there is none.  op_ended: the source */
    int32_t tag;  /* of messages; op_ended of a receive from any tag: the message's */
    uint64_t sequence; /* number among the group's collectives, from 1, the same on all members; 0: a message */
    int64_t bytes;     /* of this rank's inputs or outputs, whichever is more */
    bool async;        /* the call has async_op set */
    bool by_thread;    /* op_ended, op_failed: ended by the group's progress thread, not by a caller */
    /* op_ended, op_failed: time that this rank has spent in reductions for the operation, in any thread.  While several
     * operations that reduce are under way in a tree, they share the time of its reductions evenly.  Only if a tool has
     * set times_reductions. */
    int64_t reduce_ns;
    const tutti_tool_group *group;
} tutti_tool_op;

/* The table of a tool.  Every callback may be NULL.  The library does not copy it and never writes to it. */
typedef struct tutti_tool {
    uint32_t abi;
    uint32_t size;
    const char *name; /* for messages; not NULL */
    void *argument;   /* passed to group_made and to the range callbacks */
    bool times_reductions;

    /* Returns what the group's later callbacks get as `context`.  Without this entry they get `argument`. */
    void *(*group_made)(void *argument, const tutti_tool_group *group);
    void (*group_ended)(void *context, const tutti_tool_group *group);

    /* *data belongs to the tool and the operation.  It is NULL in op_issued, and keeps its value until the end. */
    void (*op_issued)(void *context, const tutti_tool_op *op, void **data);
    void (*op_started)(void *context, const tutti_tool_op *op, void **data);
    void (*op_ended)(void *context, const tutti_tool_op *op, void **data);
    void (*op_failed)(void *context, const tutti_tool_op *op, void **data, int status, const char *why);

    void (*range_pushed)(void *argument, const char *name);
    void (*range_popped)(void *argument);
} tutti_tool;

/* Registers a tool for the groups that are made from now on.  The table must stay valid until the process ends.  Any
 * thread may call.  Errors: INVALID_ARGUMENT (NULL, another ABI, a table that is too short, no name), NO_MEMORY
 * (TUTTI_TOOLS_MOST tools are registered). */
TUTTI_API int tutti_register_tool(const tutti_tool *tool);

#ifdef __cplusplus
}
#endif
#endif
