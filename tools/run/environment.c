#include "environment.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"

static size_t name_length(const char *entry)
{
    return strcspn(entry, "=") + 1; /* includes the '=', so that a longer name does not match */
}

/* Sets an entry "NAME=value", which the environment then owns.  Replaces an older one with the same name. */
static void set(char **environment, char *entry)
{
    size_t length = name_length(entry);
    for (; *environment; environment++) {
        if (strncmp(*environment, entry, length) != 0) continue;
        free(*environment);
        *environment = entry;
        return;
    }
    environment[0] = entry;
    environment[1] = NULL;
}

static void set_text(char **environment, const char *name, const char *value)
{
    set(environment, memory_print("%s=%s", name, value));
}

static void set_int(char **environment, const char *name, int value)
{
    set(environment, memory_print("%s=%d", name, value));
}

/* True for a variable of a launcher in whose rank this one runs.  It would be wrong for this one's ranks. */
static bool is_of_another_job(const char *entry)
{
    static const char *const names[] = {
        "TUTTI_ON_FAILURE=", "TUTTI_MEMBER=", "TUTTI_NEWCOMER=", "TUTTI_RESTART_COUNT="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* Copies this process's environment, with space for `more` entries. */
static char **copy(size_t more)
{
    size_t n = 0;
    while (environ[n]) n++;
    char **environment = memory_resize(NULL, (n + more + 1) * sizeof *environment);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!is_of_another_job(environ[i])) environment[kept++] = memory_print("%s", environ[i]);
    environment[kept] = NULL;
    return environment;
}

/* Sets what a rank is told about restarts and replacements. */
static void set_failure(char **environment, const struct options *options, const struct round *round,
                        const struct rank *rank)
{
    if (options->on_failure == OPTIONS_RESTART) {
        set_text(environment, "TUTTI_ON_FAILURE", "restart");
        set_int(environment, "TUTTI_RESTART_COUNT", round->number);
        set_int(environment, "TORCHELASTIC_RESTART_COUNT", round->restarts);
        set_int(environment, "TORCHELASTIC_MAX_RESTARTS", options->max_restarts);
        set_text(environment, "TORCHELASTIC_RUN_ID", options->rdzv_id);
    } else if (options->on_failure == OPTIONS_CONTINUE) {
        set_text(environment, "TUTTI_ON_FAILURE", "continue");
        set_int(environment, "TUTTI_MEMBER", rank->member);
        if (rank->newcomer) set_int(environment, "TUTTI_NEWCOMER", 1);
    }
}

char **environment_of(const struct options *options, const struct round *round, const struct rank *rank, int token_fd,
                      int out_fd)
{
    const struct exports *exports = &options->exports;
    char **environment = copy(24 + (size_t)exports->n);
    for (int i = 0; i < exports->n; i++) set(environment, memory_print("%s", exports->list[i]));
    if (options->mpi == OPTIONS_MPI_RANK) set_int(environment, "TUTTI_STDOUT_FD", out_fd);
    if (options->mpi != OPTIONS_NO_MPI) return environment; /* MPI's launcher sets the others */
    set_int(environment, "RANK", rank->number);
    set_int(environment, "WORLD_SIZE", round->world_size);
    set_int(environment, "LOCAL_RANK", rank->number - round->first_rank);
    set_int(environment, "LOCAL_WORLD_SIZE", options->nproc);
    set_int(environment, "NODE_RANK", round->node_rank);
    set_int(environment, "GROUP_RANK", round->node_rank); /* torchrun's name for the same */
    set_int(environment, "GROUP_WORLD_SIZE", round->n_nodes);
    set_text(environment, "MASTER_ADDR", round->addr);
    set_int(environment, "MASTER_PORT", round->port);
    set_failure(environment, options, round, rank);
    set_int(environment, "TUTTI_STORE_HOSTED", 1);
    set_int(environment, "TUTTI_TOKEN_FD", token_fd);
    set_int(environment, "TUTTI_STDOUT_FD", out_fd); /* for data, which must get no prefix and go to no log */
    /* As torchrun does: ranks that each start a thread per core would delay each other. */
    if (options->nproc > 1 && !exports_get(exports, "OMP_NUM_THREADS")) set_int(environment, "OMP_NUM_THREADS", 1);
    /* Receives that wait in as many streams as the device has queues would stop all other work: see docs/nccl.md. */
    if (!exports_get(exports, "CUDA_DEVICE_MAX_CONNECTIONS")) set_int(environment, "CUDA_DEVICE_MAX_CONNECTIONS", 32);
    return environment;
}

void environment_free(char **environment)
{
    for (char **entry = environment; *entry; entry++) free(*entry);
    free(environment);
}
