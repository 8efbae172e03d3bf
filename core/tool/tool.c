#include "tool/tool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/reduce_clock.h"
#include "tool/tools.h"

/* An operation that has not ended. */
struct tool_op {
    tutti_tool_op shown;
    void *data[TUTTI_TOOLS_MOST];
    struct tool_group *group;
    struct tool_op *next_free;
    bool started, reduces;
    double reduce_begin; /* tool_tree.share when it was issued */
};

/* The groups of a tree.  Its reductions are counted for the tree, by whichever threads do them.  Each operation that
 * reduces gets its share: time that passes while n of them are under way counts one n-th for each. */
struct tool_tree {
    uint64_t number;
    int n_groups;   /* under the lock of trees; the rest under that of the group tree */
    int n_reducing; /* operations under way */
    uint64_t seen;  /* ticks that `share` includes */
    double share;   /* ticks, divided by the operations under way at the time */
    struct tool_tree *next;
};

static struct {
    pthread_mutex_t lock;
    struct tool_tree *first;
} trees = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct tool_group {
    tutti_tool_group shown;
    struct tool_tree *tree;
    int n; /* tools that were registered when it was made */
    void *context[TUTTI_TOOLS_MOST];
    struct tool_op *free_ops;
    int32_t ranks[]; /* its global ranks, then their hosts */
};

/* ---- trees ------------------------------------------------------------------------------------------------- */

/* Another thread of the parent may have held the lock.  The parent's trees stay in the list, and are not used. */
static void reset_in_child(void)
{
    pthread_mutex_init(&trees.lock, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, reset_in_child);
}

/* Returns the tree of a group, or NULL if out of memory. */
static struct tool_tree *hold_tree(uint64_t number)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&trees.lock);
    struct tool_tree *tree = trees.first;
    while (tree != NULL && tree->number != number) tree = tree->next;
    if (tree == NULL && (tree = calloc(1, sizeof *tree)) != NULL) {
        *tree = (struct tool_tree){.number = number, .next = trees.first};
        trees.first = tree;
    }
    if (tree != NULL) tree->n_groups++;
    pthread_mutex_unlock(&trees.lock);
    return tree;
}

static void drop_tree(struct tool_tree *tree)
{
    pthread_mutex_lock(&trees.lock);
    struct tool_tree **at = &trees.first;
    while (*at != tree) at = &(*at)->next;
    if (--tree->n_groups == 0) {
        *at = tree->next;
        free(tree);
    }
    pthread_mutex_unlock(&trees.lock);
}

/* Takes the reductions since the last call into account.  A counter that trees share may go back. */
static void count_reductions(struct tool_tree *tree)
{
    uint64_t ticks = reduce_clock_read(tree->number);
    if (tree->n_reducing > 0 && ticks > tree->seen) tree->share += (double)(ticks - tree->seen) / tree->n_reducing;
    tree->seen = ticks;
}

static void begin_reducing(struct tool_op *op)
{
    struct tool_tree *tree = op->group->tree;
    reduce_clock_enter(tree->number);
    op->reduces = tutti_kind_find(op->shown.kind)->reduces;
    if (!op->reduces) return;
    count_reductions(tree);
    tree->n_reducing++;
    op->reduce_begin = tree->share;
}

static void end_reducing(struct tool_op *op)
{
    struct tool_tree *tree = op->group->tree;
    if (!op->reduces) return;
    count_reductions(tree);
    tree->n_reducing--;
    double ticks = tree->share - op->reduce_begin;
    if (ticks >= 1) op->shown.reduce_ns = ticks_to_ns((uint64_t)ticks);
}

/* ---- groups ------------------------------------------------------------------------------------------------ */

static struct tool_group *copy_group(const tutti_tool_group *from)
{
    size_t n = (size_t)from->world_size, names = strlen(from->name) + strlen(from->backend) + 2;
    struct tool_group *group = calloc(1, sizeof *group + 2 * n * sizeof group->ranks[0] + names);
    if (group == NULL) return NULL;
    char *text = (char *)(group->ranks + 2 * n);
    group->tree = hold_tree(from->tree);
    if (group->tree == NULL) {
        free(group);
        return NULL;
    }
    group->shown = *from;
    group->shown.global_ranks = group->ranks;
    memcpy(group->ranks, from->global_ranks, n * sizeof group->ranks[0]);
    if (from->hosts != NULL) group->shown.hosts = memcpy(group->ranks + n, from->hosts, n * sizeof group->ranks[0]);
    group->shown.name = strcpy(text, from->name);
    group->shown.backend = strcpy(text + strlen(text) + 1, from->backend);
    return group;
}

struct tool_group *tool_group_made(const tutti_tool_group *from)
{
    static _Atomic uint64_t numbers;
    int n = tools_count();
    if (n == 0) return NULL;
    struct tool_group *group = copy_group(from);
    if (group == NULL) {
        log_write(LOG_WARN, LOG_PLUGIN, "tools do not see group %s: out of memory", from->name);
        return NULL;
    }
    group->n = n;
    group->shown.size = sizeof group->shown;
    group->shown.number = atomic_fetch_add(&numbers, 1) + 1;
    for (int i = 0; i < n; i++) {
        const tutti_tool *tool = tools_get(i);
        group->context[i] = tool->argument;
        if (TOOL_CALLS(tool, group_made)) group->context[i] = tool->group_made(tool->argument, &group->shown);
    }
    group->shown.store = NULL;
    return group;
}

void tool_group_ended(struct tool_group *group)
{
    if (group == NULL) return;
    for (int i = 0; i < group->n; i++)
        if (TOOL_CALLS(tools_get(i), group_ended)) tools_get(i)->group_ended(group->context[i], &group->shown);
    for (struct tool_op *op = group->free_ops, *next; op != NULL; op = next) {
        next = op->next_free;
        free(op);
    }
    drop_tree(group->tree);
    free(group);
}

/* ---- operations -------------------------------------------------------------------------------------------- */

static int64_t bytes_of(const tutti_tensor *tensors, int n, tutti_dtype dtype)
{
    int64_t numel = 0;
    for (int i = 0; i < n; i++) numel += tensors[i].numel;
    return numel * tutti_dtype_bytes(dtype);
}

static struct tool_op *take_op(struct tool_group *group)
{
    struct tool_op *op = group->free_ops;
    if (op == NULL) return calloc(1, sizeof *op);
    group->free_ops = op->next_free;
    for (int i = 0; i < group->n; i++) op->data[i] = NULL;
    op->started = false;
    return op;
}

void tool_op_issue(struct tool_group *group, tutti_op *op)
{
    struct tool_op *made = op->tool == NULL && op->kind != TUTTI_COPY ? take_op(group) : NULL;
    if (made == NULL) return; /* without memory the tools miss the operation */
    op->tool = made;
    made->group = group;
    bool same = op->in == op->out && op->n_in == op->n_out;
    int64_t in = bytes_of(op->in, op->n_in, op->dtype), out = same ? in : bytes_of(op->out, op->n_out, op->dtype);
    made->shown = (tutti_tool_op){.size = sizeof made->shown,
                                  .kind = op->kind,
                                  .reduce_op = op->reduce_op,
                                  .dtype = op->dtype,
                                  .root = op->root,
                                  .tag = op->tag,
                                  .sequence = op->sequence,
                                  .bytes = in > out ? in : out,
                                  .async = op->async,
                                  .group = &group->shown};
    begin_reducing(made);
    for (int i = 0; i < group->n; i++)
        if (TOOL_CALLS(tools_get(i), op_issued))
            tools_get(i)->op_issued(group->context[i], &made->shown, &made->data[i]);
}

void tool_op_start(struct tool_op *op)
{
    if (op->started) return;
    op->started = true;
    for (int i = 0; i < op->group->n; i++)
        if (TOOL_CALLS(tools_get(i), op_started))
            tools_get(i)->op_started(op->group->context[i], &op->shown, &op->data[i]);
}

void tool_op_found(struct tool_op *op, const tutti_request *request)
{
    if (op->shown.kind != TUTTI_RECV) return;
    if (op->shown.root == TUTTI_ANY_SOURCE && request->source >= 0) op->shown.root = request->source;
    if (op->shown.tag == TUTTI_ANY_TAG) op->shown.tag = (int)(request->found_tag & INT32_MAX);
}

void tool_op_end(struct tool_op *op, int status, const char *why, bool by_thread)
{
    struct tool_group *group = op->group;
    op->shown.by_thread = by_thread;
    end_reducing(op);
    for (int i = 0; i < group->n; i++) {
        const tutti_tool *tool = tools_get(i);
        if (status == TUTTI_OK && TOOL_CALLS(tool, op_ended))
            tool->op_ended(group->context[i], &op->shown, &op->data[i]);
        if (status != TUTTI_OK && TOOL_CALLS(tool, op_failed))
            tool->op_failed(group->context[i], &op->shown, &op->data[i], status, why != NULL ? why : "");
    }
    op->next_free = group->free_ops;
    group->free_ops = op;
}
