/* env://: MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; where RANK is not set, what mpirun, srun and PMI launchers
 * set; where torchrun set them, without its own store. */
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "launcher.h"
#include "rendezvous_place.h"

/* Names of the variables, the first that is set counts; NULL ends a list early. */
struct launcher {
    const char *rank;
    const char *size[4], *local_rank[2], *local_size[2];
};

enum { PMI1 = 1 };
static const struct launcher launchers[] = {
    {"OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}, {"OMPI_COMM_WORLD_LOCAL_RANK"}, {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
    [PMI1] = {"PMI_RANK", {"PMI_SIZE"}, {"MPI_LOCALRANKID"}, {"MPI_LOCALNRANKS"}},
    {"PMIX_RANK",
     {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     {"SLURM_LOCALID"},
     {NULL}},
    {"SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, {"SLURM_LOCALID"}, {NULL}},
};
static const struct launcher own = {"RANK", {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}};

static int env_missing(const char *name, const char *because)
{
    const char *text = env_string(name, NULL);
    return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                     "env:// needs %s, which is %s (%s): start the program with tutti-run, mpirun, mpiexec or srun "
                     "--mpi=pmix, or set "
                     "MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE",
                     name, text == NULL ? "not set, or empty" : text, because);
}

static const char *env_first(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n && names[i] != NULL; i++)
        if (env_string(names[i], NULL) != NULL) return names[i];
    return NULL;
}

static int env_number(const char *name, int64_t low, int64_t high, int *value)
{
    int64_t wide = -1;
    int status = name == NULL ? TUTTI_OK : env_int(name, -1, low, high, &wide);
    if (status == TUTTI_OK) *value = (int)wide;
    return status;
}

static int env_read_ranks(const struct launcher *from, struct place *place)
{
    const char *size = env_first(from->size, 4);
    if (size == NULL) return env_missing(from->size[0], "it goes with the rank");
    int status = env_number(from->rank, 0, INT32_MAX, &place->rank);
    if (status == TUTTI_OK) log_set_rank(place->rank);
    if (status == TUTTI_OK) status = env_number(size, 1, INT32_MAX, &place->world_size);
    if (status == TUTTI_OK) status = env_number(env_first(from->local_rank, 2), 0, INT32_MAX, &place->local_rank);
    if (status == TUTTI_OK) status = env_number(env_first(from->local_size, 2), 1, INT32_MAX, &place->local_world_size);
    return status;
}

static const struct launcher *env_launcher(void)
{
    if (env_string(own.rank, NULL) != NULL) return &own;
    if (launcher_pmi1_is_last()) return &launchers[PMI1];
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (env_string(launchers[i].rank, NULL) != NULL) return &launchers[i];
    return NULL;
}

/* torchrun on several hosts: rank 0 is at MASTER_ADDR, but the port may be that of the agent's own store. */
static int env_avoid_agent(struct place *place)
{
    if (place->hosted || !env_bool("TORCHELASTIC_USE_AGENT_STORE", false)) return TUTTI_OK;
    int64_t port = place->port < 65535 ? place->port + 1 : place->port - 1;
    int status = env_int("TUTTI_MASTER_PORT", port, 1, 65535, &port);
    place->port = (uint16_t)port;
    return status;
}

static int env_read_master(const char *because, struct place *place)
{
    int64_t port;
    const char *host = env_string("MASTER_ADDR", NULL);
    if (host == NULL) return env_missing("MASTER_ADDR", because);
    if (strlen(host) >= sizeof place->host)
        return error_set(TUTTI_ERR_INVALID_ARGUMENT, "MASTER_ADDR is \"%.40s...\"; that is too long for a host", host);
    if (env_string("MASTER_PORT", NULL) == NULL) return env_missing("MASTER_PORT", because);
    int status = env_int("MASTER_PORT", 0, 1, 65535, &port);
    if (status != TUTTI_OK) return status;
    place->kind = PLACE_TCP;
    strcpy(place->host, host);
    place->port = (uint16_t)port;
    place->hosted = env_bool("TUTTI_STORE_HOSTED", false);
    return env_avoid_agent(place);
}

/* A set-uid program does not believe its environment; but to be one of a job without knowing it, and a world of its own
 * with results of its own, is worse than to be told. */
static int env_check_hidden(void)
{
    const char *hidden = env_is_hidden(own.rank) ? own.rank : NULL;
    for (size_t i = 0; hidden == NULL && i < sizeof launchers / sizeof *launchers; i++)
        if (env_is_hidden(launchers[i].rank)) hidden = launchers[i].rank;
    if (hidden == NULL) return TUTTI_OK;
    return error_set(
        TUTTI_ERR_INVALID_ARGUMENT,
        "env://: %s is set, but this program has more rights than who started it (it is set-uid or set-gid, "
        "or its file has capabilities), and such a program ignores these variables: give it no rights of "
        "its own, or rank, world_size and the place to meet by argument",
        hidden);
}

int place_from_env(struct place *place)
{
    static const char *const any[] = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    const struct launcher *from = env_launcher();
    if (from == NULL) {
        int status = env_check_hidden();
        if (status != TUTTI_OK) return status;
        const char *set = env_first(any, sizeof any / sizeof *any);
        if (set != NULL) return env_missing("RANK", set);
        place->rank = 0;
        place->world_size = 1;
        return TUTTI_OK; /* one process that nobody launched: alone */
    }
    int status = env_read_ranks(from, place);
    if (status != TUTTI_OK) return status;
    bool told = env_string("MASTER_ADDR", NULL) != NULL;
    if (from != &own && place->world_size == 1 && !told) return TUTTI_OK;
    if ((from != &own && !told && launcher_present()) || (from == &own && launcher_torchrun.present())) {
        place->kind = PLACE_TCP;
        place->by_launcher = true;
        return TUTTI_OK;
    }
    return env_read_master(from->rank, place);
}
