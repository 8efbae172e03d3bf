#include "environment.h"

#include <stdarg.h>
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

/* Copies this process's environment, with space for `more` entries. */
static char **copy(size_t more)
{
    size_t n = 0;
    while (environ[n]) n++;
    char **environment = memory_resize(NULL, (n + more + 1) * sizeof *environment);
    for (size_t i = 0; i < n; i++) environment[i] = memory_print("%s", environ[i]);
    environment[n] = NULL;
    return environment;
}

char **environment_of(const struct options *options, int local_rank, uint16_t port, int token_fd, int out_fd)
{
    char **environment = copy(16);
    if (options->mpi == OPTIONS_MPI_RANK) set_int(environment, "TUTTI_STDOUT_FD", out_fd);
    if (options->mpi != OPTIONS_NO_MPI) return environment; /* MPI's launcher sets the others */
    set_int(environment, "RANK", options->node_rank * options->nproc + local_rank);
    set_int(environment, "WORLD_SIZE", options->nnodes * options->nproc);
    set_int(environment, "LOCAL_RANK", local_rank);
    set_int(environment, "LOCAL_WORLD_SIZE", options->nproc);
    set_int(environment, "NODE_RANK", options->node_rank);
    set_int(environment, "GROUP_RANK", options->node_rank); /* torchrun's name for the same */
    set_int(environment, "GROUP_WORLD_SIZE", options->nnodes);
    set_text(environment, "MASTER_ADDR", options->master_addr);
    set_int(environment, "MASTER_PORT", port);
    set_int(environment, "TUTTI_STORE_HOSTED", 1);
    set_int(environment, "TUTTI_TOKEN_FD", token_fd);
    set_int(environment, "TUTTI_STDOUT_FD", out_fd); /* for data, which must get no prefix and go to no log */
    /* As torchrun does: ranks that each start a thread per core would delay each other. */
    if (options->nproc > 1 && !getenv("OMP_NUM_THREADS")) set_int(environment, "OMP_NUM_THREADS", 1);
    return environment;
}

void environment_free(char **environment)
{
    for (char **entry = environment; *entry; entry++) free(*entry);
    free(environment);
}
