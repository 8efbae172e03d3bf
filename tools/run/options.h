/* Parses tutti-run's command line. */
#ifndef RUN_OPTIONS_H
#define RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "bind.h"
#include "exports.h"
#include "hosts.h"

/* With --mpi tutti-run starts mpirun, and mpirun starts a tutti-run with --mpi-rank per rank. */
enum options_mpi { OPTIONS_NO_MPI, OPTIONS_START_MPI, OPTIONS_MPI_RANK };

/* What becomes of the other ranks when one fails. */
enum options_on_failure { OPTIONS_FAILURE_UNSET, OPTIONS_END, OPTIONS_RESTART, OPTIONS_CONTINUE };

enum { OPTIONS_MAX_RESTARTS = 3 }; /* if --max-restarts is not given */

struct options {
    int nproc; /* ranks on this node */
    bool nproc_is_auto;
    int nnodes; /* at most */
    int nnodes_min;
    int node_rank;
    const char *master_addr;
    int master_port;       /* 0: any free port */
    const char *rdzv_id;   /* the job's name */
    bool elastic;          /* the nodes find each other at --rdzv-endpoint */
    const char *rdzv_host; /* where the agents of several nodes meet */
    char rdzv_name[256];
    int rdzv_port;
    int64_t join_timeout_ms; /* for the smallest number of nodes to come */
    int64_t last_call_ms;    /* then for further ones */
    struct hosts hosts;      /* on which this process starts nodes over ssh; none: the ranks run here */
    const char *ssh_command; /* NULL: TUTTI_SSH, else ssh */
    int64_t ssh_timeout_ms;
    bool is_node;               /* another tutti-run has started this one over ssh */
    int first_rank, world_size; /* of such a node; world_size 0: by nproc and node_rank */
    struct exports exports;     /* further variables of the ranks */
    const char *log_dir;
    const char *token_file;
    bool no_prefix;
    enum options_on_failure on_failure;
    int max_restarts;
    int replace;        /* the most replacements of the whole job */
    int64_t backoff_ms; /* before the first start after an early death */
    enum bind bind;
    enum options_mpi mpi;
    const char *mpi_name; /* "openmpi" or "mpich"; NULL: the first that is installed */
    int64_t grace_ms;     /* time between SIGTERM and SIGKILL */
    int64_t timeout_ms;   /* limit of the whole job; 0: none */
    char **program;       /* path and arguments, terminated by NULL */
};

enum { OPTIONS_GO_ON = -1 };

/* Fills options from the command line.  Returns OPTIONS_GO_ON, or the exit status: 0 after --help and --version, 2
 * after a message on stderr. */
int options_parse(int argc, char **argv, struct options *options);

/* Frees what the options own. */
void options_free(struct options *options);

#endif
