/* Reads env://: MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE.  If RANK is not set, reads the variables of mpirun, srun
 * and PMI launchers.  Reads torchrun's variables too, but does not use torchrun's store. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "bootstrap/launcher.h"
#include "bootstrap/launcher_exchange.h"
#include "bootstrap/rendezvous_spec.h"

/* Names of a launcher's variables.  The first one that is set counts.  NULL ends a list early. */
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

static int report_missing(const char *name, const char *because)
{
    const char *text = env_string(name, NULL);
    return error_set(TUTTI_ERR_INVALID_ARGUMENT,
                     "env:// needs %s, which is %s (%s); start the program with tutti-run, mpirun, mpiexec or srun "
                     "--mpi=pmix, or set "
                     "MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE",
                     name, text == NULL ? "not set, or empty" : text, because);
}

static const char *first_set(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n && names[i] != NULL; i++)
        if (env_string(names[i], NULL) != NULL) return names[i];
    return NULL;
}

static int read_number(const char *name, int64_t low, int64_t high, int *value)
{
    int64_t wide = -1;
    int status = name == NULL ? TUTTI_OK : env_int(name, -1, low, high, &wide);
    if (status == TUTTI_OK) *value = (int)wide;
    return status;
}

/* Returns the number of tasks on a node from Slurm's list: "2(x3),1" is two on each of three nodes, then one.  -1 if
 * the node is not in the list. */
static int tasks_on_node(const char *list, int node)
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

static int read_ranks(const struct launcher *from, struct rendezvous_spec *spec)
{
    const char *size = first_set(from->size, 4);
    if (size == NULL) return report_missing(from->size[0], "the rank is set");
    int status = read_number(from->rank, 0, INT32_MAX, &spec->rank);
    if (status == TUTTI_OK) log_set_rank(spec->rank);
    if (status == TUTTI_OK) status = read_number(size, 1, INT32_MAX, &spec->world_size);
    if (status == TUTTI_OK) status = read_number(first_set(from->local_rank, 2), 0, INT32_MAX, &spec->local_rank);
    if (status == TUTTI_OK) status = read_number(first_set(from->local_size, 2), 1, INT32_MAX, &spec->local_world_size);
    if (status == TUTTI_OK) status = read_number(first_set(from->node_rank, 2), 0, INT32_MAX, &spec->node_rank);
    if (status == TUTTI_OK && from->tasks_per_node != NULL && spec->local_world_size < 0 && spec->node_rank >= 0)
        spec->local_world_size = tasks_on_node(env_string(from->tasks_per_node, NULL), spec->node_rank);
    return status;
}

static const struct launcher *find_launcher(void)
{
    if (env_string(own.rank, NULL) != NULL) return &own;
    if (launcher_pmi1_is_last()) return &launchers[PMI1];
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (env_string(launchers[i].rank, NULL) != NULL) return &launchers[i];
    return NULL;
}

/* Chooses another port with torchrun on several hosts: rank 0 runs at MASTER_ADDR, but the agent's own store may use
 * the port. */
static int avoid_agent_port(struct rendezvous_spec *spec)
{
    if (spec->launcher_hosts_store || !env_bool("TORCHELASTIC_USE_AGENT_STORE", false)) return TUTTI_OK;
    int64_t port = spec->port < 65535 ? spec->port + 1 : spec->port - 1;
    int status = env_int("TUTTI_MASTER_PORT", port, 1, 65535, &port);
    spec->port = (uint16_t)port;
    return status;
}

static int read_master(const char *because, struct rendezvous_spec *spec)
{
    int64_t port;
    const char *host = env_string("MASTER_ADDR", NULL);
    if (host == NULL) return report_missing("MASTER_ADDR", because);
    if (strlen(host) >= sizeof spec->host)
        return error_set(
            TUTTI_ERR_INVALID_ARGUMENT,
            "MASTER_ADDR is \"%.40s...\", which is too long for a host name; use a shorter name or an address", host);
    if (env_string("MASTER_PORT", NULL) == NULL) return report_missing("MASTER_PORT", because);
    int status = env_int("MASTER_PORT", 0, 1, 65535, &port);
    if (status != TUTTI_OK) return status;
    spec->kind = RENDEZVOUS_TCP;
    strcpy(spec->host, host);
    spec->port = (uint16_t)port;
    spec->launcher_hosts_store = env_bool("TUTTI_STORE_HOSTED", false);
    return avoid_agent_port(spec);
}

/* Refuses to start as a world of one if a launcher's variables are set but ignored.  A set-uid program must not trust
 * its environment, but a rank that computes alone without knowing it would return wrong results. */
static int check_hidden_variables(void)
{
    const char *hidden = env_is_hidden(own.rank) ? own.rank : NULL;
    for (size_t i = 0; hidden == NULL && i < sizeof launchers / sizeof *launchers; i++)
        if (env_is_hidden(launchers[i].rank)) hidden = launchers[i].rank;
    if (hidden == NULL) return TUTTI_OK;
    return error_set(
        TUTTI_ERR_INVALID_ARGUMENT,
        "env://: %s is set, but this program ignores it, because it runs with more privileges than its caller "
        "(set-uid, "
        "set-gid or file capabilities); remove them, or pass rank, world_size and init_method as arguments",
        hidden);
}

/* True if the ranks exchange the store's address through their launcher. */
static bool uses_launcher_exchange(const struct launcher *from)
{
    if (from == &own) return launcher_torchrun.present();
    return env_string("MASTER_ADDR", NULL) == NULL && launcher_present();
}

/* Fills in what the launcher knows about a rank and world size that were passed as arguments.  Does nothing if the
 * launcher has other numbers. */
static void read_launcher_as(const struct launcher *from, struct rendezvous_spec *spec)
{
    struct rendezvous_spec *found = malloc(sizeof *found);
    if (found == NULL) return; /* its values are optional */
    *found = (struct rendezvous_spec){
        .rank = -1, .world_size = -1, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
    if (read_ranks(from, found) == TUTTI_OK && found->rank == spec->rank && found->world_size == spec->world_size) {
        spec->local_rank = found->local_rank;
        spec->local_world_size = found->local_world_size;
        spec->node_rank = found->node_rank;
        spec->via_launcher = uses_launcher_exchange(from);
    }
    free(found);
    log_set_rank(spec->rank);
}

int rendezvous_spec_add_ranks(struct rendezvous_spec *spec)
{
    const struct launcher *from = find_launcher();
    return from == NULL ? TUTTI_OK : read_ranks(from, spec);
}

int rendezvous_spec_from_env_as(int rank, int world_size, struct rendezvous_spec *spec)
{
    char because[64];
    const struct launcher *from = find_launcher();
    *spec = (struct rendezvous_spec){
        .rank = rank, .world_size = world_size, .local_rank = -1, .local_world_size = -1, .node_rank = -1};
    if (from != NULL) read_launcher_as(from, spec);
    if (world_size == 1 && env_string("MASTER_ADDR", NULL) == NULL) return TUTTI_OK;
    if (spec->via_launcher) {
        spec->kind = RENDEZVOUS_TCP;
        return TUTTI_OK;
    }
    snprintf(because, sizeof because, "rank %d of %d is given by argument", rank, world_size);
    int status = env_string("MASTER_ADDR", NULL) == NULL ? check_hidden_variables() : TUTTI_OK;
    return status == TUTTI_OK ? read_master(because, spec) : status;
}

int rendezvous_spec_from_env(struct rendezvous_spec *spec)
{
    static const char *const any[] = {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    const struct launcher *from = find_launcher();
    if (from == NULL) {
        int status = check_hidden_variables();
        if (status != TUTTI_OK) return status;
        const char *set = first_set(any, sizeof any / sizeof *any);
        if (set != NULL) return report_missing("RANK", set);
        spec->rank = 0;
        spec->world_size = 1;
        return TUTTI_OK; /* a process that no launcher started is a world of one */
    }
    int status = read_ranks(from, spec);
    if (status != TUTTI_OK) return status;
    bool has_address = env_string("MASTER_ADDR", NULL) != NULL;
    if (from != &own && spec->world_size == 1 && !has_address) return TUTTI_OK;
    if (uses_launcher_exchange(from)) {
        spec->kind = RENDEZVOUS_TCP;
        spec->via_launcher = true;
        return TUTTI_OK;
    }
    return read_master(from->rank, spec);
}
