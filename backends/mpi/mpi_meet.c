/* Finding each other: which rank of MPI_COMM_WORLD each of our ranks is, and a communicator of just these.
 *
 * MPI's making of a communicator waits for all members without an end, so they first make sure through the store, whose
 * waits have one, that all of them are about to do it.  Meanwhile messages go on: a peer may have to finish one before
 * it gets here.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpib.h"

enum { MEET_MS = 60000, LOOK_MS = 2, TAG_MOST = 30000 };

/* What each rank tells of itself. */
struct card {
    int32_t status; /* TUTTI_OK, or why it cannot */
    int32_t world_rank, world_size;
    char library[64];
};

/* Waits for a key; what the family has under way goes on. */
static int await_key(struct mpib_group *group, const tutti_group_info *info, const char *key, void *value, size_t bytes)
{
    const tutti_host *host = group->own.host;
    int64_t most = info->timeout_ms < MEET_MS ? info->timeout_ms : MEET_MS, until = host->now_ns() + most * 1000000;
    size_t got = 0;
    int status;
    do {
        status = host->store_get(info->store, key, value, bytes, &got, group->family != NULL ? LOOK_MS : most);
        if (status != TUTTI_ERR_TIMEOUT) break;
        if (group->family != NULL) mpib_progress(group);
    } while (host->now_ns() < until);
    if (status == TUTTI_OK && got != bytes) return host->error(TUTTI_ERR_STORE, "mpi: %s holds %zu bytes", key, got);
    return status;
}

/* ---- the world ------------------------------------------------------------------------------------------------- */

static struct card my_card(const tutti_group_info *info, const tutti_host *host)
{
    struct card card = {.status = mpib_start(host, info->world_size), .world_rank = -1, .world_size = -1};
    if (card.status != TUTTI_OK) return card;
    MPI_Comm_rank(MPI_COMM_WORLD, &card.world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &card.world_size);
    snprintf(card.library, sizeof card.library, "%s", mpib_library());
    return card;
}

/* What rank 0 finds, for all: a status and its sentence, then the ranks in MPI_COMM_WORLD. */
struct verdict {
    int32_t status;
    char text[500];
    int32_t ranks[];
};

static bool refused(struct verdict *verdict, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool refused(struct verdict *verdict, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(verdict->text, sizeof verdict->text, format, args);
    va_end(args);
    verdict->status = TUTTI_ERR_BACKEND;
    return false;
}

static bool is_own_rank(const struct card *cards, int i, struct verdict *verdict)
{
    for (int k = 0; k < i; k++)
        if (cards[k].world_rank == cards[i].world_rank)
            return refused(
                verdict,
                "ranks %d and %d are both rank %d of an MPI world of %d: they were not started by one mpirun "
                "or mpiexec of %s",
                k, i, cards[i].world_rank, cards[i].world_size, cards[0].library);
    return true;
}

/* Whether all are ranks of one MPI world. */
static bool judge(const struct card *cards, int n, struct verdict *verdict)
{
    for (int i = 0; i < n; i++) {
        verdict->ranks[i] = cards[i].world_rank;
        if (cards[i].status != TUTTI_OK) return refused(verdict, "rank %d could not start MPI", i);
        if (strcmp(cards[i].library, cards[0].library) != 0)
            return refused(verdict, "rank 0 runs %s and rank %d runs %s: all need the same MPI", cards[0].library, i,
                           cards[i].library);
        if (cards[i].world_size < n)
            return refused(verdict,
                           "rank %d is in an MPI world of %d, the group has %d ranks: start them with one mpirun "
                           "or mpiexec, and with that of %s",
                           i, cards[i].world_size, n, cards[0].library);
        if (!is_own_rank(cards, i, verdict)) return false;
    }
    return true;
}

static int collect(struct mpib_group *group, const tutti_group_info *info, const struct card *mine,
                   struct verdict *verdict)
{
    struct card *cards = calloc((size_t)info->world_size, sizeof *cards);
    if (cards == NULL) return group->own.host->error(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    cards[0] = *mine;
    int status = TUTTI_OK;
    for (int i = 1; i < info->world_size && status == TUTTI_OK; i++) {
        char key[40];
        snprintf(key, sizeof key, "mpi/card/%d", i);
        status = await_key(group, info, key, &cards[i], sizeof cards[i]);
    }
    if (status == TUTTI_OK) judge(cards, info->world_size, verdict);
    free(cards);
    return status;
}

/* Fills *verdict on all ranks, or fails. */
static int decide(struct mpib_group *group, const tutti_group_info *info, struct verdict *verdict, size_t bytes)
{
    const tutti_host *host = group->own.host;
    char key[40];
    struct card card = my_card(info, host);
    int status = card.status;
    if (info->rank > 0) {
        snprintf(key, sizeof key, "mpi/card/%d", info->rank);
        int told = host->store_set(info->store, key, &card, sizeof card);
        if (status == TUTTI_OK) status = told;
        if (status == TUTTI_OK) status = await_key(group, info, "mpi/verdict", verdict, bytes);
    } else {
        if (status == TUTTI_OK)
            status = collect(group, info, &card, verdict);
        else
            refused(verdict, "rank 0 could not start MPI");
        int told = host->store_set(info->store, "mpi/verdict", verdict, bytes);
        if (status == TUTTI_OK) status = told;
    }
    if (status == TUTTI_OK && verdict->status != TUTTI_OK) {
        verdict->text[sizeof verdict->text - 1] = '\0';
        status = host->error(verdict->status, "%s", verdict->text);
    }
    return status;
}

/* ---- communicators --------------------------------------------------------------------------------------------- */

/* A communicator of the members of `from` with these ranks, in this order; members alone call. */
static int make(struct mpib_group *group, MPI_Comm from, const int32_t *ranks, int n, uint64_t id, MPI_Comm *comm)
{
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    int error = MPI_Comm_group(from, &all);
    if (error == MPI_SUCCESS) error = MPI_Group_incl(all, n, ranks, &some);
    mpib_block_begin();
    if (error == MPI_SUCCESS) error = MPI_Comm_create_group(from, some, (int)(id % TAG_MOST), comm);
    mpib_block_end();
    if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
    if (some != MPI_GROUP_NULL) MPI_Group_free(&some);
    return error == MPI_SUCCESS ? TUTTI_OK : mpib_error(group->own.host, "no communicator", error);
}

int mpib_meet_world(struct mpib_group *group, const tutti_group_info *info)
{
    size_t bytes = sizeof(struct verdict) + (size_t)info->world_size * sizeof(int32_t);
    struct verdict *verdict = calloc(1, bytes);
    if (verdict == NULL) return group->own.host->error(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    int status = decide(group, info, verdict, bytes);
    if (status == TUTTI_OK && !mpib_enter())
        status = group->own.host->error(TUTTI_ERR_BACKEND, "the program started MPI for its main thread alone");
    if (status == TUTTI_OK) {
        status = make(group, MPI_COMM_WORLD, verdict->ranks, info->world_size, info->id, &group->own.comm);
        mpib_block_begin();
        if (status == TUTTI_OK) MPI_Comm_dup(group->own.comm, &group->comm);
        mpib_block_end();
        mpib_leave();
    }
    free(verdict);
    return status;
}

int mpib_meet_members(struct mpib_group *group, const tutti_group_info *info)
{
    const tutti_host *host = group->own.host;
    char key[40], here = 1;
    int status = TUTTI_OK;
    snprintf(key, sizeof key, "mpi/here/%d", info->rank);
    if (info->rank > 0) {
        status = host->store_set(info->store, key, &here, sizeof here);
        if (status == TUTTI_OK) status = await_key(group, info, "mpi/all", &here, sizeof here);
    } else {
        for (int i = 1; i < info->world_size && status == TUTTI_OK; i++) {
            snprintf(key, sizeof key, "mpi/here/%d", i);
            status = await_key(group, info, key, &here, sizeof here);
        }
        if (status == TUTTI_OK) status = host->store_set(info->store, "mpi/all", &here, sizeof here);
    }
    if (status == TUTTI_OK && !mpib_enter())
        status = host->error(TUTTI_ERR_BACKEND, "the program started MPI for its main thread alone");
    if (status != TUTTI_OK) return status;
    status = make(group, group->family->comm, info->global_ranks, info->world_size, info->id, &group->comm);
    mpib_leave();
    return status;
}
