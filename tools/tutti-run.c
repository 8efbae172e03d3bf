/* tutti-run: starts the ranks of a job on this node, as torchrun does.
 *
 * It makes the job token, hosts the store's server (on node 0), and starts the ranks with the variables of env://.  It
 * forwards their output and its own signals, and ends all ranks when one fails.  docs/launch.md is its manual.
 *
 *   run/options      the command line               run/job          runs the ranks until all have ended
 *   run/token        the job's secret               run/job_start    starts one rank with its streams
 *   run/environment  a rank's variables             run/job_signals  handles signals
 *   run/rank         one child process              run/job_report   reports failures
 *   run/round        the store of one start of all ranks         run/job_restart  starts all ranks again
 *   run/mpi          starts the ranks through MPI's launcher     run/members      goes on after failures
 *   run/agent, leader, plan  agree with the other nodes on restarts
 *   run/hosts, ssh   starts nodes on other hosts            run/node         is such a node
 *   run/node_wire    what the two say to each other         run/exports      variables for the ranks
 *   run/feed, sink   a rank's output -> lines -> the launcher's stdout and stderr, without blocking */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <tutti/store.h>
#include <tutti/tutti.h>

#include "run/job.h"
#include "run/mpi.h"
#include "run/options.h"
#include "run/signals.h"
#include "run/token.h"

enum { LINGER_MS = 5000 };

/* Opens descriptors 0, 1 and 2 if they are closed.  Otherwise the next descriptor would become a rank's stream. */
static void fill_standard_streams(void)
{
    int fd;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

/* Raises the limit of descriptors: each rank costs at least two pipes and one connection, so the usual 1024 do not
 * suffice for 300 ranks. */
static void raise_descriptors(struct rlimit *old)
{
    getrlimit(RLIMIT_NOFILE, old);
    struct rlimit all = {old->rlim_max, old->rlim_max};
    setrlimit(RLIMIT_NOFILE, &all);
}

/* Runs the ranks with a token and a store, as a node of a larger job unless that is NULL. */
static int run_with(const struct options *options, const struct signals *signals, int out_fd, int token_fd,
                    struct node *node)
{
    struct job job = {.options = options, .signals = signals, .token_fd = token_fd, .out_fd = out_fd, .node = node};
    raise_descriptors(&job.files);
    int status = job_run(&job);
    if (job.store && status == 0)
        tutti_store_linger(job.store, LINGER_MS); /* ranks of other nodes may still need the store */
    tutti_store_free(job.store);
    agent_free(&job, LINGER_MS);
    close(token_fd);
    return status;
}

static int run(const struct options *options, const struct signals *signals, int out_fd)
{
    uint8_t token[TUTTI_TOKEN_BYTES];
    if (token_find(options->token_file, options->nnodes == 1, token) != 0) return 1;
    int token_fd = token_descriptor(token);
    explicit_bzero(token, sizeof token);
    return token_fd < 0 ? 1 : run_with(options, signals, out_fd, token_fd, NULL);
}

/* Runs the ranks of a node that another tutti-run has started over ssh. */
static int run_node(struct options *options, const struct signals *signals, int out_fd)
{
    struct node node;
    int status = node_receive(&node, options);
    if (status == OPTIONS_GO_ON) {
        int token_fd = token_descriptor(node.config.token);
        status = token_fd < 0 ? 1 : run_with(options, signals, out_fd, token_fd, &node);
    }
    free(node.frames.data);
    node_free_config(&node.config);
    return status;
}

/* Runs MPI's launcher, or one of its ranks.  Token and rendezvous come from MPI's launcher. */
static int run_mpi(struct options *options, const struct signals *signals, int out_fd)
{
    struct job job = {.options = options, .signals = signals, .token_fd = -1, .out_fd = out_fd};
    getrlimit(RLIMIT_NOFILE, &job.files);
    if (options->mpi == OPTIONS_START_MPI) {
        job.starter = mpi_start_instead(options);
        return job.starter ? job_run(&job) : 1;
    }
    int status = mpi_take_rank(options) == 0 ? job_run(&job) : 1;
    if (status != 0) mpi_report_failure(status);
    return status;
}

int main(int argc, char **argv)
{
    struct options options;
    struct signals signals;
    fill_standard_streams();
    int status = options_parse(argc, argv, &options);
    if (status != OPTIONS_GO_ON) {
        options_free(&options);
        return status;
    }
    signals_block(&signals);
    int out_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (out_fd < 0) {
        perror("tutti-run: cannot duplicate stdout");
        return 1;
    }
    if (options.is_node)
        status = run_node(&options, &signals, out_fd);
    else
        status = options.mpi == OPTIONS_NO_MPI ? run(&options, &signals, out_fd) : run_mpi(&options, &signals, out_fd);
    close(out_fd);
    options_free(&options);
    return status;
}
