#include "options_text.h"

#include <stddef.h>
#include <string.h>

const char options_help[] =
    "usage: tutti-run [options] PROGRAM [arguments]\n"
    "\n"
    "Starts PROGRAM once per rank, with the variables that tutti_init_process_group(\"env://\") reads.\n"
    "\n"
    "  -n, --nproc-per-node N   ranks on this node; auto: one per usable core (default 1)\n"
    "      --nnodes N           number of nodes; start tutti-run once on each (default 1); MIN:MAX: nodes may come "
    "and\n"
    "                           go between restarts, with --rdzv-endpoint instead of the next three options\n"
    "      --node-rank R        number of this node, from 0\n"
    "      --master-addr A      address of node 0, as the others reach it (default 127.0.0.1)\n"
    "      --master-port P      port of the rendezvous; 0: any free one (default, on one node)\n"
    "      --token-file FILE    the job's secret, the same file on all nodes: 32 bytes or 64 hex digits, mode 0600\n"
    "      --log-dir DIR        write each rank's output to DIR/rank_R.out and DIR/rank_R.err\n"
    "      --no-prefix          leave the ranks' output unchanged, without \"[rank] \" before each line\n"
    "      --grace S            seconds between SIGTERM and SIGKILL at the end of the job (default 5)\n"
    "      --timeout S          end the job after this many seconds (exit status 124); 0: never (default)\n"
    "      --rdzv-endpoint H:P  where the nodes meet, the same on each: one of them has the address H (port 29400)\n"
    "      --rdzv-id ID         the job's name, the same on all nodes (default none)\n"
    "      --rdzv-conf K=S,..   join_timeout (600): seconds for MIN nodes to come; last_call_timeout (3): for more\n"
    "      --on-failure=WHAT    when a rank fails: end the job (default), restart all ranks, or continue without it\n"
    "      --max-restarts N     start all ranks again at most N times (default 3); implies --on-failure=restart\n"
    "      --replace N          start at most N ranks in the place of failed ones; implies --on-failure=continue\n"
    "      --backoff S          seconds before a start in the place of ranks that died early (default 0.5), doubled\n"
    "                           each time up to 30 s\n"
    "      --mpi[=NAME]         start the ranks through the launcher of an MPI (openmpi or mpich; default: the first\n"
    "                           that is installed), which backend mpi needs; one tutti-run for all nodes\n"
    "      --bind WHAT          bind each rank to a core or a socket, or to none (default): the library moves ranks\n"
    "                           that share a core; with --mpi, an option for its launcher\n"
    "      --standalone         one node, any free port: the default, accepted for torchrun's sake\n"
    "  -h, --help               this text\n"
    "      --version            the version\n"
    "\n"
    "Options may have '_' for '-', and may be written --option=value or --option value.\n"
    "The exit status is 0 if all ranks succeed, else that of the first failed rank, or 128 + its signal.\n";

bool options_same_name(const char *text, const char *name)
{
    for (; *name; text++, name++)
        if ((*text == '_' ? '-' : *text) != *name) return false;
    return *text == '\0' || *text == '=';
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
        if (options_same_name(argument + 2, theirs[i][0])) return theirs[i][1];
    return NULL;
}
