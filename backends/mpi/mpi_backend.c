/* Function table of the mpi backend, opening and closing of its groups. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpib.h"

enum { CLOSE_MS = 1000 };

static int open_root_group(struct mpib_group *group, const tutti_group_info *info)
{
    struct mpib_tree *tree = &group->own;
    tree->rank = info->rank;
    tree->core = info->core;
    tree->counters = TUTTI_HAS(info, counters) ? info->counters : NULL;
    int status = mpib_messages_open(tree, info->world_size);
    if (status == TUTTI_OK) status = mpib_create_world(group, info);
    if (status == TUTTI_OK && mpib_enter()) {
        status = mpib_messages_listen(tree);
        mpib_leave();
    }
    if (status != TUTTI_OK) return status;
    group->tree = tree;
    mpib_doorbells_probe(tree, info->world_size);
    mpib_tree_opened();
    return TUTTI_OK;
}

static int open_subgroup(struct mpib_group *group, const tutti_group_info *info)
{
    group->tree = ((struct mpib_group *)info->parent)->tree;
    if (group->tree == NULL || info->world_size == 1) {
        group->tree = NULL;
        return TUTTI_OK;
    }
    return mpib_create_subgroup(group, info);
}

/* Value of TUTTI_MPI_NATIVE when the table was handed out; it does not change afterwards.  It must be the same on all
 * ranks: see mpib_create_world. */
static enum mpib_native native;

static int mpib_open(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct mpib_group *group = state;
    group->native = native;
    group->own.host = host;
    STAILQ_INIT(&group->unsent);
    group->own.comm = group->comm = MPI_COMM_NULL;
    group->own.timer = group->own.doorbell_fd = -1;
    group->own.inbox = MPI_REQUEST_NULL;
    group->id = info->id;
    group->global_ranks = info->global_ranks;
    group->rank = info->rank;
    group->world_size = info->world_size;
    group->core = info->core;
    int status = info->parent == NULL ? mpib_wait_open(&group->own, info) : TUTTI_OK;
    if (status != TUTTI_OK || (info->parent == NULL && info->world_size == 1))
        return status; /* a world of one has no peers */
    status = info->parent == NULL ? open_root_group(group, info) : open_subgroup(group, info);
    bool main_only = mpib_main_only(); /* the progress thread may start a collective and cannot defer it */
    if (main_only || TUTTI_HAS(info, plans_only)) group->native = MPIB_NATIVE_NEVER;
    if (status == TUTTI_OK && group->tree != NULL) {
        LIST_INSERT_HEAD(&group->tree->groups, group, link);
        group->listed = true;
    }
    return status;
}

/* Flushes pending sends and waits at most CLOSE_MS for messages that peers have started.  If a group has failed, peers
 * may still be sending to it.  Their messages are received and discarded until every peer has announced its
 * departure. */
static bool drain(struct mpib_tree *tree, int peers)
{
    int64_t until = tree->host->now_ns() + CLOSE_MS * INT64_C(1000000);
    mpib_messages_last(tree, peers);
    while ((tree->n_pending > 0 || (tree->n_failed_groups > 0 && tree->n_departed < peers)) &&
           tree->host->now_ns() < until) {
        mpib_pending_test(tree);
        mpib_messages_poll(tree);
    }
    return tree->n_pending == 0;
}

static void close_tree(struct mpib_tree *tree, int peers)
{
    bool clean = drain(tree, peers);
    mpib_messages_unlisten(tree);
    if (clean)
        MPI_Comm_free(&tree->comm);
    else
        TUTTI_LOG_AS(tree->host, "mpi", 1,
                     "MPI still holds %d requests of abandoned operations; keep their tensors valid", tree->n_pending);
    mpib_tree_closed(clean);
    free(tree->requests);
    free(tree->pending);
    free(tree->done);
    free(tree->status);
}

static void mpib_close(void *state)
{
    struct mpib_group *group = state;
    if (group->own.host == NULL) return;
    mpib_drop_unsent(group);
    bool may_enter = group->tree != NULL && mpib_enter(), has_collectives = false;
    if (group->listed) {
        LIST_REMOVE(group, link);
        mpib_messages_drop(group);
        mpib_pending_drop(group->tree, group);
        for (int i = 0; i < group->tree->n_pending; i++) {
            const struct mpib_pending *pending = &group->tree->pending[i];
            has_collectives |= pending->group == group && !pending->is_message;
        }
    }
    if (may_enter && group->comm != MPI_COMM_NULL && !has_collectives) MPI_Comm_free(&group->comm);
    if (may_enter && group->tree == &group->own) close_tree(&group->own, group->world_size - 1);
    if (may_enter) mpib_leave();
    mpib_messages_close(&group->own);
    mpib_wait_close(&group->own);
    memset(group, 0, sizeof *group);
}

/* Writes the versions of MPI and the plug-in.  MPI_Get_library_version may be called before MPI_Init. */
static int mpib_describe(const tutti_host *host, void *group, char *text, size_t capacity)
{
    char *library = calloc(1, MPIB_VERSION_MAX); /* too large for a small stack */
    int length = 0;
    if (library == NULL) return host->error(TUTTI_ERR_NO_MEMORY, "out of memory for the name of the MPI library");
    MPI_Get_library_version(library, &length);
    library[strcspn(library, "\n")] = '\0';
    snprintf(text, capacity, "%s%s\n", group != NULL ? "mpi: " : "library: ", library);
    free(library);
    return TUTTI_OK;
}

TUTTI_BACKEND_EXPORT extern const tutti_backend tutti_backend_v1;

/* Fills the table that is handed out.  Called again if the plug-in is loaded under another name; the answer stays the
 * same. */
static const tutti_backend *fill_native_table(const tutti_host *host)
{
    static tutti_backend table;
    if (table.abi != 0) return &table;
    bool asked = host->env("TUTTI_MPI_NATIVE") != NULL;
    if (asked) native = tutti_env_bool(host, "TUTTI_MPI_NATIVE", false) ? MPIB_NATIVE_ALWAYS : MPIB_NATIVE_NEVER;
    table = tutti_backend_v1;
    mpib_native_fill(native, host->env("TUTTI_ALGO") != NULL, &table); /* both are the same on all ranks */
    return &table;
}

const tutti_backend tutti_backend_v1 = {
    TUTTI_BACKEND_HEADER,
    .name = MPIB_TABLE,
    .version = "1, on " MPIB_BUILT_FOR,
    .group_bytes = sizeof(struct mpib_group),
    .devices = 1u << TUTTI_CPU,
    .open = mpib_open,
    .close = mpib_close,
    .send = mpib_send,
    .recv = mpib_recv,
    .recv_reduce = mpib_recv_reduce,
    .progress = mpib_progress,
    .arm = mpib_arm,
    .cancel = mpib_cancel,
    .notify = mpib_notify,
    .abort = mpib_abort,
    .leave = mpib_announce_exit,
    .latency_ns = 1500,
    .bytes_per_us = 4000,
    .segment_bytes = 4 << 20, /* each segment has a cost, so large segments come closest to MPI's own throughput */
    .recv_reduce_most = MPIB_SHORT,
    .traits = TUTTI_BACKEND_UNSIZED,
    .describe = mpib_describe,
    .tell = mpib_tell,
    .ready = mpib_ready,
    .offer = mpib_offer,
    .instead = fill_native_table,
    .explain = mpib_explain,
    .paths = mpib_paths,
    .choose = mpib_choose,
};
