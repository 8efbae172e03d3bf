#include "options_text.h"

#include <stddef.h>
#include <string.h>

const struct cli_option options_table[] = {
    {"nproc-per-node", "N", "auto", "ranks on this node; auto: one per usable core (default 1)", 'n', OPTION_NPROC},
    {"nnodes", "N", NULL,
     "number of nodes; start tutti-run once on each (default 1); MIN:MAX: nodes may come and\n"
     "go between restarts, with --rdzv-endpoint instead of the next three options",
     0, OPTION_NNODES},
    {"node-rank", "R", NULL, "number of this node, from 0", 0, OPTION_NODE_RANK},
    {"master-addr", "A", CLI_HOST, "address of node 0, as the others reach it (default 127.0.0.1)", 0,
     OPTION_MASTER_ADDR},
    {"master-port", "P", NULL, "port of the rendezvous; 0: any free one (default, on one node)", 0, OPTION_MASTER_PORT},
    {"hosts", "H:N,..", CLI_HOST, "start N ranks on each host H over ssh; without :N as many as --nproc-per-node says",
     0, OPTION_HOSTS},
    {"hostfile", "FILE", CLI_FILE, "the same from lines \"HOST:N\" or \"HOST slots=N\"", 0, OPTION_HOSTFILE},
    {"ssh-command", "CMD", NULL, "what starts a command on a host (default TUTTI_SSH, else ssh)", 0,
     OPTION_SSH_COMMAND},
    {"ssh-timeout", "S", NULL, "seconds for a host to answer (default 30)", 0, OPTION_SSH_TIMEOUT},
    {"export", "V[=X]", NULL, "set the variable V of the ranks to X, or to its value here; may be repeated", 'x',
     OPTION_EXPORT},
    {"env-file", "FILE", CLI_FILE, "set the variables of the ranks from lines NAME=VALUE", 0, OPTION_ENV_FILE},
    {"token-file", "FILE", CLI_FILE,
     "the job's secret, the same file on all nodes: 32 bytes or 64 hex digits, mode 0600", 0, OPTION_TOKEN_FILE},
    {"log-dir", "DIR", CLI_FOLDER, "write each rank's output to DIR/rank_R.out and DIR/rank_R.err", 0, OPTION_LOG_DIR},
    {"no-prefix", NULL, NULL, "leave the ranks' output unchanged, without \"[rank] \" before each line", 0,
     OPTION_NO_PREFIX},
    {"grace", "S", NULL, "seconds between SIGTERM and SIGKILL at the end of the job (default 5)", 0, OPTION_GRACE},
    {"timeout", "S", NULL, "end the job after this many seconds (exit status 124); 0: never (default)", 0,
     OPTION_TIMEOUT},
    {"rdzv-endpoint", "H:P", CLI_HOST,
     "where the nodes meet, the same on each: one of them has the address H (port 29400)", 0, OPTION_RDZV_ENDPOINT},
    {"rdzv-id", "ID", NULL, "the job's name, the same on all nodes (default none)", 0, OPTION_RDZV_ID},
    {"rdzv-conf", "K=S,..", "join_timeout= last_call_timeout=",
     "join_timeout (600): seconds for MIN nodes to come; last_call_timeout (3): for more", 0, OPTION_RDZV_CONF},
    {"on-failure", "WHAT", "end restart continue",
     "when a rank fails: end the job (default), restart all ranks, or continue without it", 0, OPTION_ON_FAILURE},
    {"max-restarts", "N", NULL, "start all ranks again at most N times (default 3); implies --on-failure=restart", 0,
     OPTION_MAX_RESTARTS},
    {"replace", "N", NULL, "start at most N ranks in the place of failed ones; implies --on-failure=continue", 0,
     OPTION_REPLACE},
    {"backoff", "S", NULL,
     "seconds before a start in the place of ranks that died early (default 0.5), doubled\neach time up to 30 s", 0,
     OPTION_BACKOFF},
    {"mpi", "[NAME]", "openmpi mpich",
     "start the ranks through the launcher of an MPI (openmpi or mpich; default: the first\n"
     "that is installed), which backend mpi needs; hosts as with --hosts",
     0, OPTION_MPI},
    {"mpi-rank", NULL, NULL, NULL, 0, OPTION_MPI_RANK},
    {"ssh-node", NULL, NULL, NULL, 0, OPTION_NODE},
    {"bind", "WHAT", "none core socket",
     "bind each rank to a core or a socket, or to none (default): the library moves ranks\n"
     "that share a core; with --mpi, an option for its launcher",
     0, OPTION_BIND},
    {"standalone", NULL, NULL, "one node, any free port: the default, accepted for torchrun's sake", 0,
     OPTION_STANDALONE},
    {NULL, NULL, NULL, NULL, 0, 0},
};

/* True if text is `name` up to its '=' or end. */
static bool is_same(const char *text, const char *name)
{
    size_t length = strlen(name);
    return strncmp(text, name, length) == 0 && (text[length] == '\0' || text[length] == '=');
}

const char *options_why_not(const char *argument)
{
    static const char own_rendezvous[] =
        "the rendezvous is Tutti's own: give --rdzv-endpoint, or --master-addr and --master-port";
    static const char logs[] = "--log-dir DIR writes each rank's output to files of its own";
    static const char *const theirs[][2] = {
        {"rdzv-backend", own_rendezvous},
        {"local-addr", own_rendezvous},
        {"use-agent-store", own_rendezvous},
        {"monitor-interval", "tutti-run hears of a rank's end at once"},
        {"redirects", logs},
        {"tee", logs},
        {"logs-specs", logs},
        {"local-ranks-filter", logs},
        {"no-python", "tutti-run starts any program as it is: omit the option"},
        {"run-path", "tutti-run starts any program as it is: omit the option"},
        {"module", "give `python -m MODULE` as the program"},
        {"start-method", "each rank is always a process of its own"},
        {"role", "all ranks have the same role"},
        {"shutdown-timeout", "use --grace SECONDS for this time"},
        {"virtual-local-rank", "LOCAL_RANK always differs by rank"},
        {"event-log-handler", "tutti-run reports events on stderr only"},
        {"numa-binding", "use --bind socket, or start the ranks under numactl"},
    };
    if (argument[1] != '-') {
        if (argument[1] == 'm') return "give `python -m MODULE` as the program";
        return argument[1] == 'r' || argument[1] == 't' ? logs : NULL;
    }
    for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
        if (is_same(argument + 2, theirs[i][0])) return theirs[i][1];
    return NULL;
}
