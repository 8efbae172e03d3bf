/* Rendezvous of the ranks: maps each to its rank in MPI_COMM_WORLD, and creates communicators.
 *
 * MPI creates a communicator collectively and waits for all members forever, so the members first make sure that all of
 * them are about to do it.  For a subgroup the core has agreed on it before the open (see mpib_ready).  For the root
 * group the ranks use the store, whose waits have timeouts.  Rank 0 decides for all: it announces itself, the others
 * publish their business cards, and it publishes the verdict.  A rank that has published its card follows the verdict
 * and nothing else.  If it gave up on its own deadline, the others could proceed without it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpib.h"

/* The core waits this long afterwards for all ranks to open the root group. */
#define TIMEOUT_MAX_MS (INT64_C(1) << 40) /* about 30 years, stands for no limit */
enum { FIRST_MS = 60000, LATER_MS = 1000, TAG_MAX = 30000, NS_PER_MS = 1000000 };

/* The data that each rank publishes about itself in MPI, for the root group only. */
struct business_card {
    int32_t status; /* TUTTI_OK, or why this rank cannot take part */
    int32_t world_rank, world_size;
    int32_t native; /* TUTTI_MPI_NATIVE: see mpib_group */
    char library[64];
    char job[256]; /* the PMIx namespace, or empty: ranks of two jobs cannot meet in MPI, which would hang */
    struct mpib_doorbell doorbell;
};

/* Rank 0's decision for all: a status with its message, a number that identifies this rendezvous, and each rank's rank
 * in MPI_COMM_WORLD and doorbell. */
struct verdict {
    int32_t status;
    uint32_t number;
    char text[500];
    struct {
        int32_t world_rank;
        struct mpib_doorbell doorbell;
    } of[];
};

static bool refuse(struct verdict *verdict, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

static bool refuse(struct verdict *verdict, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(verdict->text, sizeof verdict->text, format, args);
    va_end(args);
    verdict->status = status;
    return false;
}

/* ---- the decision ---------------------------------------------------------------------------------------------- */

static bool check_unique(const struct business_card *cards, int i, struct verdict *verdict)
{
    for (int k = 0; k < i; k++)
        if (cards[k].world_rank == cards[i].world_rank)
            return refuse(
                verdict, TUTTI_ERR_BACKEND,
                "ranks %d and %d are both rank %d of an MPI world of %d; start them with one mpirun or mpiexec of %s",
                k, i, cards[i].world_rank, cards[i].world_size, cards[0].library);
    return true;
}

static bool check_card(const struct business_card *cards, int i, int n, struct verdict *verdict)
{
    if (cards[i].status != TUTTI_OK) return refuse(verdict, TUTTI_ERR_BACKEND, "rank %d could not start MPI", i);
    if (strcmp(cards[i].library, cards[0].library) != 0)
        return refuse(verdict, TUTTI_ERR_BACKEND, "rank 0 runs %s but rank %d runs %s; use the same MPI on all ranks",
                      cards[0].library, i, cards[i].library);
    if (cards[i].native != cards[0].native)
        return refuse(verdict, TUTTI_ERR_INVALID_ARGUMENT,
                      "TUTTI_MPI_NATIVE differed between rank 0 and rank %d when they loaded the backend; set it to "
                      "the same value on all ranks, before the first call that names the backend",
                      i);
    if (cards[i].world_size < n)
        return refuse(verdict, TUTTI_ERR_BACKEND,
                      "rank %d is in an MPI world of %d ranks, but the group has %d; start all ranks with one mpirun "
                      "or mpiexec of %s",
                      i, cards[i].world_size, n, cards[0].library);
    if (strcmp(cards[i].job, cards[0].job) != 0)
        return refuse(
            verdict, TUTTI_ERR_BACKEND,
            "rank 0 belongs to job \"%.100s\" but rank %d to job \"%.100s\"; start all ranks with one mpirun of %s",
            cards[0].job, i, cards[i].job, cards[0].library);
    return check_unique(cards, i, verdict);
}

/* Checks that all are ranks of one MPI world. */
static void judge(const struct business_card *cards, int n, struct verdict *verdict)
{
    for (int i = 0; i < n && check_card(cards, i, n, verdict); i++) {
        verdict->of[i].world_rank = cards[i].world_rank;
        verdict->of[i].doorbell = cards[i].doorbell;
    }
}

/* ---- rendezvous ------------------------------------------------------------------------------------------------ */

struct rendezvous {
    const tutti_group_info *info;
    const tutti_host *host;
    int64_t timeout_ms, until_ns;
};

static int wait_for_key(const struct rendezvous *rendezvous, const char *key, void *value, size_t bytes,
                        int64_t until_ns)
{
    const tutti_host *host = rendezvous->host;
    size_t got = 0;
    int64_t left = (until_ns - host->now_ns()) / NS_PER_MS;
    int status = host->store_get(rendezvous->info->store, key, value, bytes, &got, left < 0 ? 0 : left);
    if (status == TUTTI_OK && got != bytes)
        return host->error(TUTTI_ERR_STORE, "mpi: key %s has an unexpected size of %zu bytes", key, got);
    return status;
}

static int report_timeout(const struct rendezvous *rendezvous, const char *who)
{
    return rendezvous->host->error(TUTTI_ERR_TIMEOUT, "mpi: group %s was not created within %.3f s: %s did not arrive",
                                   rendezvous->info->name, (double)rendezvous->timeout_ms / 1000, who);
}

/* Appends a rank to a list such as "ranks 2, 5". */
static void append_straggler(char *text, size_t capacity, int32_t rank)
{
    size_t used = strlen(text);
    if (used + 16 < capacity) snprintf(text + used, capacity - used, used > 0 ? ", %d" : "rank %d", rank);
}

/* Collects all cards on rank 0, and lists the stragglers. */
static int collect_cards(const struct rendezvous *rendezvous, struct business_card *cards, char *stragglers,
                         size_t capacity)
{
    int status = rendezvous->host->store_set(rendezvous->info->store, "mpi/begun", "", 1);
    for (int i = 1; i < rendezvous->info->world_size && status == TUTTI_OK; i++) {
        char key[40];
        snprintf(key, sizeof key, "mpi/card/%d", i);
        status = wait_for_key(rendezvous, key, &cards[i], sizeof cards[i], rendezvous->until_ns);
        if (status != TUTTI_ERR_TIMEOUT) continue;
        append_straggler(stragglers, capacity, rendezvous->info->global_ranks[i]);
        status = TUTTI_OK; /* the deadline has passed: only check whether the others are there */
    }
    return status;
}

static int decide(const struct rendezvous *rendezvous, const struct business_card *mine, struct verdict *verdict,
                  size_t bytes)
{
    char stragglers[200] = "";
    struct business_card *cards = calloc((size_t)rendezvous->info->world_size, sizeof *cards);
    int status = cards != NULL ? TUTTI_OK
                               : rendezvous->host->error(TUTTI_ERR_NO_MEMORY, "out of memory for %d ranks",
                                                         rendezvous->info->world_size);
    if (status == TUTTI_OK) {
        cards[0] = *mine;
        status = collect_cards(rendezvous, cards, stragglers, sizeof stragglers);
    }
    if (status != TUTTI_OK)
        refuse(verdict, status, "rank %d could not create the group", rendezvous->info->global_ranks[0]);
    else if (stragglers[0] != '\0')
        refuse(verdict, TUTTI_ERR_TIMEOUT, "%s", stragglers);
    else
        judge(cards, rendezvous->info->world_size, verdict);
    rendezvous->host->random(&verdict->number, sizeof verdict->number);
    free(cards);
    int published = rendezvous->host->store_set(rendezvous->info->store, "mpi/verdict", verdict, bytes);
    return status != TUTTI_OK ? status : published;
}

static int await_verdict(const struct rendezvous *rendezvous, const struct business_card *mine, struct verdict *verdict,
                         size_t bytes)
{
    char key[40], begun, first[32];
    int status = wait_for_key(rendezvous, "mpi/begun", &begun, sizeof begun, rendezvous->until_ns);
    snprintf(first, sizeof first, "rank %d", rendezvous->info->global_ranks[0]);
    if (status == TUTTI_ERR_TIMEOUT) return report_timeout(rendezvous, first);
    snprintf(key, sizeof key, "mpi/card/%d", rendezvous->info->rank);
    if (status == TUTTI_OK) status = rendezvous->host->store_set(rendezvous->info->store, key, mine, sizeof *mine);
    if (status != TUTTI_OK) return status;
    int64_t decided_ns =
        rendezvous->host->now_ns() + (rendezvous->timeout_ms + LATER_MS) * NS_PER_MS; /* rank 0 started earlier */
    status = wait_for_key(rendezvous, "mpi/verdict", verdict, bytes, decided_ns);
    return status == TUTTI_ERR_TIMEOUT ? report_timeout(rendezvous, first) : status;
}

/* Fills *verdict on all ranks, or fails on all. */
static int run_rendezvous(const tutti_host *host, const tutti_group_info *info, int64_t timeout_ms,
                          const struct business_card *mine, struct verdict *verdict, size_t bytes)
{
    struct rendezvous rendezvous = {.info = info, .host = host, .timeout_ms = timeout_ms};
    if (rendezvous.timeout_ms > TIMEOUT_MAX_MS) rendezvous.timeout_ms = TIMEOUT_MAX_MS;
    rendezvous.until_ns = host->now_ns() + rendezvous.timeout_ms * NS_PER_MS;
    int status =
        info->rank == 0 ? decide(&rendezvous, mine, verdict, bytes) : await_verdict(&rendezvous, mine, verdict, bytes);
    if (status != TUTTI_OK || verdict->status == TUTTI_OK) return status;
    verdict->text[sizeof verdict->text - 1] = '\0';
    if (verdict->status == TUTTI_ERR_TIMEOUT) return report_timeout(&rendezvous, verdict->text);
    return host->error(verdict->status, "%s", verdict->text);
}

/* ---- the world ------------------------------------------------------------------------------------------------- */

static struct business_card make_card(struct mpib_tree *tree, const tutti_group_info *info, const tutti_host *host,
                                      int32_t native)
{
    struct business_card card = {
        .status = mpib_start(host, info->world_size), .world_rank = -1, .world_size = -1, .native = native};
    if (card.status != TUTTI_OK) return card;
    MPI_Comm_rank(MPI_COMM_WORLD, &card.world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &card.world_size);
    const char *job = host->env("PMIX_NAMESPACE");
    snprintf(card.library, sizeof card.library, "%s", mpib_library());
    snprintf(card.job, sizeof card.job, "%s", job != NULL ? job : "");
    tree->doorbell_fd = mpib_doorbell_open(host, info->local_world_size == info->world_size, &card.doorbell);
    return card;
}

/* ---- communicators --------------------------------------------------------------------------------------------- */

/* Creates a communicator of the members of `from` with these ranks, in this order; only members call.  `number`
 * separates communicators that threads create for the same ranks at once.  Open MPI uses it as a tag within `from`, so
 * no receive of this backend may be posted there. */
static int create_comm(struct mpib_group *group, MPI_Comm from, const int32_t *ranks, int n, uint32_t number,
                       MPI_Comm *comm)
{
    MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
    int error = MPI_Comm_group(from, &all);
    if (error == MPI_SUCCESS) error = MPI_Group_incl(all, n, ranks, &some);
    mpib_block_begin();
    if (error == MPI_SUCCESS) error = MPI_Comm_create_group(from, some, (int)(number % TAG_MAX), comm);
    mpib_block_end();
    if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    if (all != MPI_GROUP_NULL) MPI_Group_free(&all);
    if (some != MPI_GROUP_NULL) MPI_Group_free(&some);
    return error == MPI_SUCCESS ? TUTTI_OK : mpib_error(group->own.host, "cannot create a communicator", error);
}

static int create_world_comm(struct mpib_group *group, const tutti_group_info *info, const struct verdict *verdict)
{
    struct mpib_tree *tree = &group->own;
    int32_t *ranks = calloc((size_t)info->world_size, sizeof *ranks);
    tree->doorbells = calloc((size_t)info->world_size, sizeof *tree->doorbells);
    int status = TUTTI_OK;
    if (ranks == NULL || tree->doorbells == NULL)
        status = tree->host->error(TUTTI_ERR_NO_MEMORY, "out of memory for %d ranks", info->world_size);
    for (int i = 0; status == TUTTI_OK && i < info->world_size; i++) {
        ranks[i] = verdict->of[i].world_rank;
        tree->doorbells[i] = verdict->of[i].doorbell;
    }
    if (status == TUTTI_OK)
        status = create_comm(group, MPI_COMM_WORLD, ranks, info->world_size, verdict->number, &tree->comm);
    mpib_block_begin();
    if (status == TUTTI_OK) MPI_Comm_dup(tree->comm, &group->comm);
    mpib_block_end();
    free(ranks);
    return status;
}

/* Publishes that this rank cannot take part, so that the others need not wait for it. */
static int publish_failure(const tutti_group_info *info, const tutti_host *host, const struct business_card *card,
                           struct verdict *verdict, size_t bytes)
{
    char key[40];
    snprintf(key, sizeof key, "mpi/card/%d", info->rank);
    int published = host->store_set(info->store, key, card, sizeof *card);
    if (info->rank == 0) {
        refuse(verdict, TUTTI_ERR_BACKEND, "rank %d could not create the group", info->global_ranks[0]);
        published = host->store_set(info->store, "mpi/begun", "", 1);
        if (published == TUTTI_OK) published = host->store_set(info->store, "mpi/verdict", verdict, bytes);
    }
    return published != TUTTI_OK ? published : card->status;
}

int mpib_create_world(struct mpib_group *group, const tutti_group_info *info)
{
    const tutti_host *host = group->own.host;
    size_t bytes = sizeof(struct verdict) + (size_t)info->world_size * sizeof(((struct verdict *)NULL)->of[0]);
    struct verdict *verdict = calloc(1, bytes);
    if (verdict == NULL) return host->error(TUTTI_ERR_NO_MEMORY, "out of memory for %d ranks", info->world_size);
    struct business_card card = make_card(&group->own, info, host, (int32_t)group->native);
    int64_t timeout_ms = info->timeout_ms < FIRST_MS ? info->timeout_ms : FIRST_MS;
    int status = card.status == TUTTI_OK ? run_rendezvous(host, info, timeout_ms, &card, verdict, bytes)
                                         : publish_failure(info, host, &card, verdict, bytes);
    if (status == TUTTI_OK && !mpib_enter())
        status = host->error(TUTTI_ERR_BACKEND, "the program started MPI for its main thread only; call Tutti from "
                                                "that thread, or use MPI_THREAD_MULTIPLE");
    else if (status == TUTTI_OK) {
        status = create_world_comm(group, info, verdict);
        mpib_leave();
    }
    free(verdict);
    return status;
}

static int report_wrong_thread(const tutti_host *host)
{
    return host->error(TUTTI_ERR_BACKEND, "MPI cannot be called from this thread: the program started it for its main "
                                          "thread only, or has finalized it; call Tutti from that thread");
}

int mpib_ready(void *state)
{
    const tutti_host *host = ((struct mpib_group *)state)->own.host;
    if (!mpib_enter()) return report_wrong_thread(host);
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

int mpib_create_subgroup(struct mpib_group *group, const tutti_group_info *info)
{
    const tutti_host *host = group->own.host;
    uint32_t number;
    if (!TUTTI_HAS(info, offer)) return host->error(TUTTI_ERR_BACKEND, "mpi: the ranks have not agreed on a group");
    if (!mpib_enter()) return report_wrong_thread(host);
    memcpy(&number, info->offer, sizeof number);
    MPI_Comm parent = ((const struct mpib_group *)info->parent)->comm; /* carries no messages and has the same ranks */
    int status = create_comm(group, parent, info->global_ranks, info->world_size, number, &group->comm);
    mpib_leave();
    return status;
}
