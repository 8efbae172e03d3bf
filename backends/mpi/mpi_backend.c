/* The mpi backend: the table, and the life of its groups. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpib.h"

enum { CLOSE_MS = 1000 };

static int open_first(struct mpib_group *group, const tutti_group_info *info)
{
    struct mpib_family *family = &group->own;
    family->rank = info->rank;
    family->core = info->core;
    int status = mpib_messages_open(family, info->world_size);
    if (status == TUTTI_OK) status = mpib_meet_world(group, info);
    if (status == TUTTI_OK && mpib_enter()) {
        status = mpib_messages_listen(family);
        mpib_leave();
    }
    if (status != TUTTI_OK) return status;
    group->family = family;
    mpib_bells_try(family, info->world_size);
    mpib_family_opened();
    return TUTTI_OK;
}

static int open_further(struct mpib_group *group, const tutti_group_info *info)
{
    group->family = ((struct mpib_group *)info->parent)->family;
    if (group->family == NULL || info->world_size == 1) {
        group->family = NULL;
        return TUTTI_OK;
    }
    return mpib_meet_members(group, info);
}

/* Of the table that was given out, which it does not change after; the same on all ranks: see mpib_meet_world. */
static enum mpib_native native;

static int mpib_open(void *state, const tutti_group_info *info, const tutti_host *host)
{
    struct mpib_group *group = state;
    group->native = native;
    group->own.host = host;
    STAILQ_INIT(&group->untold);
    group->own.comm = group->comm = MPI_COMM_NULL;
    group->own.timer = group->own.bell = -1;
    group->own.inbox = MPI_REQUEST_NULL;
    group->id = info->id;
    group->global_ranks = info->global_ranks;
    group->rank = info->rank;
    group->world_size = info->world_size;
    group->core = info->core;
    int status = info->parent == NULL ? mpib_wait_open(&group->own, info) : TUTTI_OK;
    if (status != TUTTI_OK || (info->parent == NULL && info->world_size == 1)) return status; /* nobody to talk to */
    status = info->parent == NULL ? open_first(group, info) : open_further(group, info);
    bool unsafe = mpib_main_only(); /* the core's thread may begin one, and cannot put it off */
    if (unsafe || TUTTI_HAS(info, plans_only)) group->native = MPIB_NATIVE_NEVER;
    if (status == TUTTI_OK && group->family != NULL) {
        LIST_INSERT_HEAD(&group->family->groups, group, link);
        group->listed = true;
    }
    return status;
}

/* What has been sent is let go; what peers have begun is not waited for longer than a second.  Where a group has failed
 * peers may still be sending what nobody wants: it is taken in until all have said that nothing more comes. */
static bool drain(struct mpib_family *family, int peers)
{
    int64_t until = family->host->now_ns() + CLOSE_MS * INT64_C(1000000);
    mpib_messages_last(family, peers);
    while ((family->n_flights > 0 || (family->n_dead > 0 && family->goodbyes < peers)) &&
           family->host->now_ns() < until) {
        mpib_flights_test(family);
        mpib_messages_poll(family);
    }
    return family->n_flights == 0;
}

static void close_family(struct mpib_family *family, int peers)
{
    bool clean = drain(family, peers);
    mpib_messages_deafen(family);
    if (clean)
        MPI_Comm_free(&family->comm);
    else
        family->host->log(1, "MPI keeps %d requests of operations that were given up: their tensors must stay valid",
                          family->n_flights);
    mpib_family_closed(clean);
    free(family->requests);
    free(family->flights);
    free(family->done);
    free(family->status);
}

static void mpib_close(void *state)
{
    struct mpib_group *group = state;
    if (group->own.host == NULL) return;
    mpib_forget_untold(group);
    bool may_call = group->family != NULL && mpib_enter(), ended = false;
    if (group->listed) {
        LIST_REMOVE(group, link);
        mpib_messages_drop(group);
        mpib_flights_drop(group->family, group);
        for (int i = 0; i < group->family->n_flights; i++) {
            const struct mpib_flight *flight = &group->family->flights[i];
            ended |= flight->group == group && !flight->is_message;
        }
    }
    if (may_call && group->comm != MPI_COMM_NULL && !ended) MPI_Comm_free(&group->comm);
    if (may_call && group->family == &group->own) close_family(&group->own, group->world_size - 1);
    if (may_call) mpib_leave();
    mpib_messages_close(&group->own);
    mpib_wait_close(&group->own);
    memset(group, 0, sizeof *group);
}

/* MPI says which it is before it has been started, too. */
static int mpib_describe(const tutti_host *host, void *group, char *text, size_t capacity)
{
    char *library = calloc(1, MPIB_VERSION_MOST); /* too large for a small stack */
    int length = 0;
    if (library == NULL) return host->error(TUTTI_ERR_NO_MEMORY, "no memory for the name of the MPI library");
    MPI_Get_library_version(library, &length);
    library[strcspn(library, "\n")] = '\0';
    snprintf(text, capacity, "%s%s\n", group != NULL ? "mpi: " : "library: ", library);
    free(library);
    return TUTTI_OK;
}

TUTTI_BACKEND_EXPORT extern const tutti_backend tutti_backend_v1;

/* Asked again where the plug-in is loaded by another name, too; the answer stays the same. */
static const tutti_backend *with_natives(const tutti_host *host)
{
    static tutti_backend table;
    if (table.abi != 0) return &table;
    bool asked = host->env("TUTTI_MPI_NATIVE") != NULL;
    if (asked) native = tutti_env_bool(host, "TUTTI_MPI_NATIVE", false) ? MPIB_NATIVE_ALWAYS : MPIB_NATIVE_NEVER;
    table = tutti_backend_v1;
    mpib_native_fill(native, &table);
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
    .leave = mpib_left,
    .latency_ns = 1500,
    .bytes_per_us = 4000,
    .segment_bytes = 4 << 20, /* each costs some us: with 256 KiB 4 MiB took a tenth longer than MPI's own */
    .recv_reduce_most = MPIB_SHORT,
    .traits = TUTTI_BACKEND_UNSIZED,
    .describe = mpib_describe,
    .tell = mpib_tell,
    .ready = mpib_ready,
    .offer = mpib_offer,
    .instead = with_natives,
};
