/* Finding each other: which rank of MPI_COMM_WORLD each of ours is, and a communicator of just these.
 *
 * MPI's making of a communicator waits for all members without an end, so they first make sure that all of them are
 * about to do it.  Members of a further group have agreed when the core opens it (see mpib_ready).  Those of the first
 * one do so through the store, whose waits have an end.  Rank 0 decides for all: it says that it is there, the others
 * hand in their cards, and it hands out what it makes of them.  Who has handed in his card goes by what is decided and
 * by nothing else: were he to give up at a time of his own, he might be missed just after all had been told to begin.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpib.h"

/* The first group of all: as long as the core waits afterwards for all ranks to have opened it. */
#define MOST_MS (INT64_C(1) << 40) /* some 30 years, in place of no limit */
enum { FIRST_MS = 60000, LATER_MS = 1000, TAG_MOST = 30000, NS_A_MS = 1000000 };

/* What each rank tells of itself; the MPI's own part only to the first group. */
struct card {
    int32_t status; /* TUTTI_OK, or why it cannot */
    int32_t world_rank, world_size;
    int32_t native; /* as mpib_group has it */
    char library[64];
    char job[256]; /* as PMIx calls it, empty where there is none: ranks of two cannot meet in MPI, which would wait */
    struct mpib_bell bell;
};

/* What rank 0 finds, for all: a status and its sentence, a number of this meeting's own, then each one's rank in
 * MPI_COMM_WORLD, and bell. */
struct verdict {
    int32_t status;
    uint32_t number;
    char text[500];
    struct {
        int32_t world_rank;
        struct mpib_bell bell;
    } of[];
};

static bool refused(struct verdict *verdict, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

static bool refused(struct verdict *verdict, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(verdict->text, sizeof verdict->text, format, args);
    va_end(args);
    verdict->status = status;
    return false;
}

/* ---- meeting --------------------------------------------------------------------------------------------------- */

struct meeting {
    struct mpib_group *group;
    const tutti_group_info *info;
    const tutti_host *host;
    int64_t most_ms, until_ns;
    void (*judge)(const struct meeting *meeting, const struct card *cards, struct verdict *verdict);
};

static int await_key(const struct meeting *meeting, const char *key, void *value, size_t bytes, int64_t until_ns)
{
    const tutti_host *host = meeting->host;
    size_t got = 0;
    int64_t left = (until_ns - host->now_ns()) / NS_A_MS;
    int status = host->store_get(meeting->info->store, key, value, bytes, &got, left < 0 ? 0 : left);
    if (status == TUTTI_OK && got != bytes) return host->error(TUTTI_ERR_STORE, "mpi: %s holds %zu bytes", key, got);
    return status;
}

static int too_late(const struct meeting *meeting, const char *who)
{
    return meeting->host->error(TUTTI_ERR_TIMEOUT, "mpi: group %s was not made within %.3f s: %s did not come",
                                meeting->info->name, (double)meeting->most_ms / 1000, who);
}

/* Adds a rank to "ranks 2, 5". */
static void add_missing(char *text, size_t room, int32_t rank)
{
    size_t used = strlen(text);
    if (used + 16 < room) snprintf(text + used, room - used, used > 0 ? ", %d" : "rank %d", rank);
}

/* Rank 0: the cards of all, and who has not handed in any. */
static int collect(const struct meeting *meeting, struct card *cards, char *missing, size_t room)
{
    int status = meeting->host->store_set(meeting->info->store, "mpi/begun", "", 1);
    for (int i = 1; i < meeting->info->world_size && status == TUTTI_OK; i++) {
        char key[40];
        snprintf(key, sizeof key, "mpi/card/%d", i);
        status = await_key(meeting, key, &cards[i], sizeof cards[i], meeting->until_ns);
        if (status != TUTTI_ERR_TIMEOUT) continue;
        add_missing(missing, room, meeting->info->global_ranks[i]);
        status = TUTTI_OK; /* for the others it is only looked */
    }
    return status;
}

static int lead(const struct meeting *meeting, const struct card *mine, struct verdict *verdict, size_t bytes)
{
    char missing[200] = "";
    struct card *cards = calloc((size_t)meeting->info->world_size, sizeof *cards);
    int status = cards != NULL ? TUTTI_OK : meeting->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    if (status == TUTTI_OK) {
        cards[0] = *mine;
        status = collect(meeting, cards, missing, sizeof missing);
    }
    if (status != TUTTI_OK)
        refused(verdict, status, "rank %d could not make the group", meeting->info->global_ranks[0]);
    else if (missing[0] != '\0')
        refused(verdict, TUTTI_ERR_TIMEOUT, "%s", missing);
    else
        meeting->judge(meeting, cards, verdict);
    meeting->host->random(&verdict->number, sizeof verdict->number);
    free(cards);
    int told = meeting->host->store_set(meeting->info->store, "mpi/verdict", verdict, bytes);
    return status != TUTTI_OK ? status : told;
}

static int follow(const struct meeting *meeting, const struct card *mine, struct verdict *verdict, size_t bytes)
{
    char key[40], begun, first[32];
    int status = await_key(meeting, "mpi/begun", &begun, sizeof begun, meeting->until_ns);
    snprintf(first, sizeof first, "rank %d", meeting->info->global_ranks[0]);
    if (status == TUTTI_ERR_TIMEOUT) return too_late(meeting, first);
    snprintf(key, sizeof key, "mpi/card/%d", meeting->info->rank);
    if (status == TUTTI_OK) status = meeting->host->store_set(meeting->info->store, key, mine, sizeof *mine);
    if (status != TUTTI_OK) return status;
    int64_t decided_ns = meeting->host->now_ns() + (meeting->most_ms + LATER_MS) * NS_A_MS; /* rank 0 began before */
    status = await_key(meeting, "mpi/verdict", verdict, bytes, decided_ns);
    return status == TUTTI_ERR_TIMEOUT ? too_late(meeting, first) : status;
}

/* Fills *verdict on all ranks, or fails on all. */
static int meet(struct mpib_group *group, const tutti_group_info *info, int64_t most_ms, const struct card *mine,
                void (*judge)(const struct meeting *, const struct card *, struct verdict *), struct verdict *verdict,
                size_t bytes)
{
    const tutti_host *host = group->own.host;
    struct meeting meeting = {.group = group, .info = info, .host = host, .most_ms = most_ms, .judge = judge};
    if (meeting.most_ms > MOST_MS) meeting.most_ms = MOST_MS;
    meeting.until_ns = host->now_ns() + meeting.most_ms * NS_A_MS;
    int status = info->rank == 0 ? lead(&meeting, mine, verdict, bytes) : follow(&meeting, mine, verdict, bytes);
    if (status != TUTTI_OK || verdict->status == TUTTI_OK) return status;
    verdict->text[sizeof verdict->text - 1] = '\0';
    if (verdict->status == TUTTI_ERR_TIMEOUT) return too_late(&meeting, verdict->text);
    return host->error(verdict->status, "%s", verdict->text);
}

/* ---- the world ------------------------------------------------------------------------------------------------- */

static struct card my_card(struct mpib_family *family, const tutti_group_info *info, const tutti_host *host,
                           int32_t native)
{
    struct card card = {
        .status = mpib_start(host, info->world_size), .world_rank = -1, .world_size = -1, .native = native};
    if (card.status != TUTTI_OK) return card;
    MPI_Comm_rank(MPI_COMM_WORLD, &card.world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &card.world_size);
    const char *job = host->env("PMIX_NAMESPACE");
    snprintf(card.library, sizeof card.library, "%s", mpib_library());
    snprintf(card.job, sizeof card.job, "%s", job != NULL ? job : "");
    family->bell = mpib_bell_open(host, info->local_world_size == info->world_size, &card.bell);
    return card;
}

static bool is_own_rank(const struct card *cards, int i, struct verdict *verdict)
{
    for (int k = 0; k < i; k++)
        if (cards[k].world_rank == cards[i].world_rank)
            return refused(
                verdict, TUTTI_ERR_BACKEND,
                "ranks %d and %d are both rank %d of an MPI world of %d: they were not started by one mpirun "
                "or mpiexec of %s",
                k, i, cards[i].world_rank, cards[i].world_size, cards[0].library);
    return true;
}

static bool fits_world(const struct card *cards, int i, int n, struct verdict *verdict)
{
    if (cards[i].status != TUTTI_OK) return refused(verdict, TUTTI_ERR_BACKEND, "rank %d could not start MPI", i);
    if (strcmp(cards[i].library, cards[0].library) != 0)
        return refused(verdict, TUTTI_ERR_BACKEND, "rank 0 runs %s and rank %d runs %s: all need the same MPI",
                       cards[0].library, i, cards[i].library);
    if (cards[i].native != cards[0].native)
        return refused(
            verdict, TUTTI_ERR_INVALID_ARGUMENT,
            "TUTTI_MPI_NATIVE differed between rank 0 and rank %d when they loaded the backend: set it alike "
            "on all ranks, before the first call that names it",
            i);
    if (cards[i].world_size < n)
        return refused(verdict, TUTTI_ERR_BACKEND,
                       "rank %d is in an MPI world of %d, the group has %d ranks: start them with one mpirun "
                       "or mpiexec, and with that of %s",
                       i, cards[i].world_size, n, cards[0].library);
    if (strcmp(cards[i].job, cards[0].job) != 0)
        return refused(
            verdict, TUTTI_ERR_BACKEND,
            "rank 0 is of job \"%.100s\" and rank %d of job \"%.100s\": start all ranks with one mpirun of %s",
            cards[0].job, i, cards[i].job, cards[0].library);
    return is_own_rank(cards, i, verdict);
}

/* Whether all are ranks of one MPI world. */
static void judge_world(const struct meeting *meeting, const struct card *cards, struct verdict *verdict)
{
    int n = meeting->info->world_size;
    for (int i = 0; i < n && fits_world(cards, i, n, verdict); i++) {
        verdict->of[i].world_rank = cards[i].world_rank;
        verdict->of[i].bell = cards[i].bell;
    }
}

/* ---- communicators --------------------------------------------------------------------------------------------- */

/* A communicator of the members of `from` with these ranks, in this order; members alone call.  The number tells two
 * apart that threads make of the same ranks at once.  Open MPI takes it for the tag of messages that it sends within
 * `from`, where a receive of ours would get them: there must be none. */
static int make(struct mpib_group *group, MPI_Comm from, const int32_t *ranks, int n, uint32_t number, MPI_Comm *comm)
{
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    int error = MPI_Comm_group(from, &all);
    if (error == MPI_SUCCESS) error = MPI_Group_incl(all, n, ranks, &some);
    mpib_block_begin();
    if (error == MPI_SUCCESS) error = MPI_Comm_create_group(from, some, (int)(number % TAG_MOST), comm);
    mpib_block_end();
    if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
    if (some != MPI_GROUP_NULL) MPI_Group_free(&some);
    return error == MPI_SUCCESS ? TUTTI_OK : mpib_error(group->own.host, "no communicator", error);
}

static int make_world(struct mpib_group *group, const tutti_group_info *info, const struct verdict *verdict)
{
    struct mpib_family *family = &group->own;
    int32_t *ranks = calloc((size_t)info->world_size, sizeof *ranks);
    family->bells = calloc((size_t)info->world_size, sizeof *family->bells);
    int status = TUTTI_OK;
    if (ranks == NULL || family->bells == NULL)
        status = family->host->error(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    for (int i = 0; status == TUTTI_OK && i < info->world_size; i++) {
        ranks[i] = verdict->of[i].world_rank;
        family->bells[i] = verdict->of[i].bell;
    }
    if (status == TUTTI_OK)
        status = make(group, MPI_COMM_WORLD, ranks, info->world_size, verdict->number, &family->comm);
    mpib_block_begin();
    if (status == TUTTI_OK) MPI_Comm_dup(family->comm, &group->comm);
    mpib_block_end();
    free(ranks);
    return status;
}

/* This rank cannot, and has said why; the others need not wait to hear that. */
static int stay_away(const tutti_group_info *info, const tutti_host *host, const struct card *card,
                     struct verdict *verdict, size_t bytes)
{
    char key[40];
    snprintf(key, sizeof key, "mpi/card/%d", info->rank);
    int told = host->store_set(info->store, key, card, sizeof *card);
    if (info->rank == 0) {
        refused(verdict, TUTTI_ERR_BACKEND, "rank %d could not make the group", info->global_ranks[0]);
        told = host->store_set(info->store, "mpi/begun", "", 1);
        if (told == TUTTI_OK) told = host->store_set(info->store, "mpi/verdict", verdict, bytes);
    }
    return told != TUTTI_OK ? told : card->status;
}

int mpib_meet_world(struct mpib_group *group, const tutti_group_info *info)
{
    const tutti_host *host = group->own.host;
    size_t bytes = sizeof(struct verdict) + (size_t)info->world_size * sizeof(((struct verdict *)NULL)->of[0]);
    struct verdict *verdict = calloc(1, bytes);
    if (verdict == NULL) return host->error(TUTTI_ERR_NO_MEMORY, "no memory for a group");
    struct card card = my_card(&group->own, info, host, (int32_t)group->native);
    int64_t most = info->timeout_ms < FIRST_MS ? info->timeout_ms : FIRST_MS;
    int status = card.status == TUTTI_OK ? meet(group, info, most, &card, judge_world, verdict, bytes)
                                         : stay_away(info, host, &card, verdict, bytes);
    if (status == TUTTI_OK && !mpib_enter())
        status = host->error(TUTTI_ERR_BACKEND, "the program started MPI for its main thread alone");
    else if (status == TUTTI_OK) {
        status = make_world(group, info, verdict);
        mpib_leave();
    }
    free(verdict);
    return status;
}

static int not_here(const tutti_host *host)
{
    return host->error(
        TUTTI_ERR_BACKEND,
        "MPI cannot be called here: the program started it for its main thread alone, which this is not, "
        "or has finalized it");
}

int mpib_ready(void *state)
{
    const tutti_host *host = ((struct mpib_group *)state)->own.host;
    if (!mpib_enter()) return not_here(host);
    mpib_leave();
    return TUTTI_OK;
}

int mpib_offer(void *state, const tutti_group_info *info, uint8_t *offer)
{
    uint32_t number;
    (void)info;
    ((struct mpib_group *)state)->own.host->random(&number, sizeof number);
    memcpy(offer, &number, sizeof number);
    return TUTTI_OK;
}

int mpib_meet_members(struct mpib_group *group, const tutti_group_info *info)
{
    const tutti_host *host = group->own.host;
    uint32_t number;
    if (!TUTTI_HAS(info, offer)) return host->error(TUTTI_ERR_BACKEND, "mpi: the ranks have not agreed on a group");
    if (!mpib_enter()) return not_here(host);
    memcpy(&number, info->offer, sizeof number);
    MPI_Comm parent = ((const struct mpib_group *)info->parent)->comm; /* no messages, and the same ranks as theirs */
    int status = make(group, parent, info->global_ranks, info->world_size, number, &group->comm);
    mpib_leave();
    return status;
}
