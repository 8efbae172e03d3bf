/* env://: MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; where RANK is not set, what mpirun, srun and PMI launchers
 * set; where torchrun set them, without its own store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "bootstrap/launcher.h"
#include "bootstrap/launcher_board.h"
#include "bootstrap/rendezvous_place.h"

/* Names of the variables, the first that is set counts; NULL ends a list early. */
struct launcher {
    const char *rank;
    const char *size[4], *local_rank[2], *local_size[2], *node_rank[2];
    const char *tasks_per_node; /* Slurm's list, "2(x3),1" */
};

enum { PMI1 = 1 };
static const struct launcher launchers[] = {
    {.rank = "OMPI_COMM_WORLD_RANK",
     .size = {"OMPI_COMM_WORLD_SIZE"},
     .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
     .local_size = {"OMPI_COMM_WORLD_LOCAL_SIZE"}},
    [PMI1] = {.rank = "PMI_RANK",
              .size = {"PMI_SIZE"},
              .local_rank = {"MPI_LOCALRANKID"},
              .local_size = {"MPI_LOCALNRANKS"}},
    {.rank = "PMIX_RANK",
     .size = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     .local_rank = {"SLURM_LOCALID"},
     .node_rank = {"SLURM_NODEID"},
     .tasks_per_node = "SLURM_STEP_TASKS_PER_NODE"},
    {.rank = "SLURM_PROCID",
     .size = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
     .local_rank = {"SLURM_LOCALID"},
     .node_rank = {"SLURM_NODEID"},
     .tasks_per_node = "SLURM_STEP_TASKS_PER_NODE"},
};
static const struct launcher own = {.rank = "RANK",
                                    .size = {"WORLD_SIZE"},
                                    .local_rank = {"LOCAL_RANK"},
                                    .local_size = {"LOCAL_WORLD_SIZE"},
                                    .node_rank = {"GROUP_RANK", "NODE_RANK"}};

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

/* Returns the tasks of a node by Slurm's list, "2(x3),1": two on each of three nodes, then one.  -1: not there. */
static int env_tasks_of(const char *list, int node)
{
    int tasks, nodes, used = 0;
    while (list != NULL && sscanf(list, "%9d%n", &tasks, &used) == 1 && tasks > 0) {
        list += used;
        used = 0;
        if (sscanf(list, "(x%9d)%n", &nodes, &used) != 1 || used == 0) nodes = 1;
        if (node < nodes) return tasks;
        node -= nodes;
        list += used;
        list = *list == ',' ? list + 1 : NULL;
    }
    return -1;
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
    if (status == TUTTI_OK) status = env_number(env_first(from->node_rank, 2), 0, INT32_MAX, &place->node_rank);
    if (status == TUTTI_OK && from->tasks_per_node != NULL && place->local_world_size < 0 && place->node_rank >= 0)
        place->local_world_size = env_tasks_of(env_string(from->tasks_per_node, NULL), place->node_rank);
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

/* Whether the ranks learn from their launcher where they meet. */
static bool env_meets_by_launcher(const struct launcher *from)
{
    if (from == &own) return launcher_torchrun.present();
    return env_string("MASTER_ADDR", NULL) == NULL && launcher_present();
}

/* What the launcher says of a rank and world size that are given by argument; nothing where it has others. */
static void env_launched_as(const struct launcher *from, struct place *place)
{
    struct place *seen = malloc(sizeof *seen);
    if (seen == NULL) return; /* what it says is no more than a help */
    *seen = (struct place){.rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
    if (env_read_ranks(from, seen) == TUTTI_OK && seen->rank == place->rank && seen->world_size == place->world_size) {
        place->local_rank = seen->local_rank;
        place->local_world_size = seen->local_world_size;
        place->node_rank = seen->node_rank;
        place->by_launcher = env_meets_by_launcher(from);
    }
    free(seen);
    log_set_rank(place->rank);
}

int place_from_env_as(int rank, int world_size, struct place *place)
{
    char because[64];
    const struct launcher *from = env_launcher();
    *place = (struct place){
        .rank = rank, .world_size = world_size, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
    if (from != NULL) env_launched_as(from, place);
    if (world_size == 1 && env_string("MASTER_ADDR", NULL) == NULL) return TUTTI_OK;
    if (place->by_launcher) {
        place->kind = PLACE_TCP;
        return TUTTI_OK;
    }
    snprintf(because, sizeof because, "rank %d of %d is given by argument", rank, world_size);
    int status = env_string("MASTER_ADDR", NULL) == NULL ? env_check_hidden() : TUTTI_OK;
    return status == TUTTI_OK ? env_read_master(because, place) : status;
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
    if (env_meets_by_launcher(from)) {
        place->kind = PLACE_TCP;
        place->by_launcher = true;
        return TUTTI_OK;
    }
    return env_read_master(from->rank, place);
}
